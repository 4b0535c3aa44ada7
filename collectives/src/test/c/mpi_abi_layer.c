/* A library with MPI's standard binary interface (MPI 5.0, chapter 20) over another MPI, for tests:
 * the functions that JCCL calls, with the standard's handles, constants and status.
 *
 *   mpicc -shared -fPIC -Wl,-soname,libmpi_abi.so.1 -o libmpi_abi.so.1 mpi_abi_layer.c
 *
 * It is compiled with the other MPI's header and calls its PMPI_ functions. Its own have the names
 * of the standard by assembler labels, since the header has declared those with other types. */
#include <mpi.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef void *H; /* any handle of the standard ABI */

typedef struct {
    int source, tag, error, inside[5];
} Status;

#define EXPORT(name) __asm__(#name) __attribute__((visibility("default")))
#define OUT(h) ((H)(uintptr_t)(h))
#define LARGEST 0x300 /* predefined handles are smaller; those of MPICH and pointers are larger */

static uintptr_t key(H h) { return (uintptr_t)h; }

static MPI_Comm comm(H h) {
    switch (key(h)) {
    case 0x100: return MPI_COMM_NULL;
    case 0x101: return MPI_COMM_WORLD;
    case 0x102: return MPI_COMM_SELF;
    default: return (MPI_Comm)key(h);
    }
}

static MPI_Datatype type(H h) {
    switch (key(h)) {
    case 0x210: return MPI_FLOAT;
    case 0x214: return MPI_DOUBLE;
    case 0x240: return MPI_INT8_T;
    case 0x241: return MPI_UINT8_T;
    case 0x247: return MPI_BYTE;
    case 0x248: return MPI_INT16_T;
    case 0x249: return MPI_UINT16_T;
    case 0x250: return MPI_INT32_T;
    case 0x251: return MPI_UINT32_T;
    case 0x258: return MPI_INT64_T;
    case 0x259: return MPI_UINT64_T;
    default:
        if (key(h) < LARGEST) {
            abort();
        }
        return (MPI_Datatype)key(h);
    }
}

static MPI_Op op(H h) {
    switch (key(h)) {
    case 0x21: return MPI_SUM;
    case 0x22: return MPI_MIN;
    case 0x23: return MPI_MAX;
    case 0x24: return MPI_PROD;
    default:
        if (key(h) < LARGEST) {
            abort();
        }
        return (MPI_Op)key(h);
    }
}

static MPI_Errhandler errhandler(H h) {
    return key(h) == 0x143 ? MPI_ERRORS_RETURN : MPI_ERRORS_ARE_FATAL;
}

static MPI_Request request(H h) {
    return key(h) == 0x180 ? MPI_REQUEST_NULL : (MPI_Request)key(h);
}

static H request_out(MPI_Request r) { return r == MPI_REQUEST_NULL ? (H)0x180 : OUT(r); }

static const void *in(const void *p) { return key((H)p) == 1 ? MPI_IN_PLACE : p; }

static int source(int s) { return s == -1 ? MPI_ANY_SOURCE : s; }

static void status_out(Status *to, const MPI_Status *from) {
    if (to) {
        to->source = from->MPI_SOURCE;
        to->tag = from->MPI_TAG;
        to->error = from->MPI_ERROR;
        /* MPICH's has 20 bytes; of Open MPI's 24, the first 12 are those three. */
        size_t skip = sizeof *from > sizeof to->inside ? sizeof *from - sizeof to->inside : 0;
        memcpy(to->inside, (const char *)from + skip, sizeof *from - skip);
    }
}

static void status_in(MPI_Status *to, const Status *from) {
    size_t skip = sizeof *to > sizeof from->inside ? sizeof *to - sizeof from->inside : 0;
    memset(to, 0, sizeof *to);
    memcpy((char *)to + skip, from->inside, sizeof *to - skip);
}

static int level_in(int l) {
    return l == 4096   ? MPI_THREAD_MULTIPLE
           : l == 2048 ? MPI_THREAD_SERIALIZED
           : l == 1024 ? MPI_THREAD_FUNNELED
                       : MPI_THREAD_SINGLE;
}

static int level_out(int l) {
    return l == MPI_THREAD_MULTIPLE     ? 4096
           : l == MPI_THREAD_SERIALIZED ? 2048
           : l == MPI_THREAD_FUNNELED   ? 1024
                                        : 0;
}

/* ---- environment */

int x_abi(int *major, int *minor) EXPORT(MPI_Abi_get_version);
int x_abi(int *major, int *minor) {
    *major = 1;
    *minor = 0;
    return 0;
}
int x_library(char *text, int *length) EXPORT(MPI_Get_library_version);
int x_library(char *text, int *length) { return PMPI_Get_library_version(text, length); }
int x_initialized(int *flag) EXPORT(MPI_Initialized);
int x_initialized(int *flag) { return PMPI_Initialized(flag); }
int x_init(int *argc, char ***argv, int wanted, int *got) EXPORT(MPI_Init_thread);
int x_init(int *argc, char ***argv, int wanted, int *got) {
    int code = PMPI_Init_thread(argc, argv, level_in(wanted), got);
    *got = level_out(*got);
    return code;
}
int x_query(int *got) EXPORT(MPI_Query_thread);
int x_query(int *got) {
    int code = PMPI_Query_thread(got);
    *got = level_out(*got);
    return code;
}
int x_finalize(void) EXPORT(MPI_Finalize);
int x_finalize(void) { return PMPI_Finalize(); }
int x_abort(H c, int code) EXPORT(MPI_Abort);
int x_abort(H c, int code) { return PMPI_Abort(comm(c), code); }
int x_class(int code, int *class) EXPORT(MPI_Error_class);
int x_class(int code, int *class) {
    int result = PMPI_Error_class(code, class);
    *class = *class == MPI_ERR_TRUNCATE    ? 15
             : *class == MPI_ERR_IN_STATUS ? 19
             : *class == MPI_ERR_PENDING   ? 18
                                           : *class;
    return result;
}
int x_text(int code, char *text, int *length) EXPORT(MPI_Error_string);
int x_text(int code, char *text, int *length) { return PMPI_Error_string(code, text, length); }

/* ---- communicators, operations */

int x_rank(H c, int *rank) EXPORT(MPI_Comm_rank);
int x_rank(H c, int *rank) { return PMPI_Comm_rank(comm(c), rank); }
int x_size(H c, int *size) EXPORT(MPI_Comm_size);
int x_size(H c, int *size) { return PMPI_Comm_size(comm(c), size); }
int x_handler(H c, H e) EXPORT(MPI_Comm_set_errhandler);
int x_handler(H c, H e) { return PMPI_Comm_set_errhandler(comm(c), errhandler(e)); }
int x_handler_of(H c, H *e) EXPORT(MPI_Comm_get_errhandler);
int x_handler_of(H c, H *e) {
    MPI_Errhandler m;
    int code = PMPI_Comm_get_errhandler(comm(c), &m);
    *e = (H)(uintptr_t)(m == MPI_ERRORS_RETURN ? 0x143 : 0x141);
    return code;
}
int x_dup(H c, H *made) EXPORT(MPI_Comm_dup);
int x_dup(H c, H *made) {
    MPI_Comm m;
    int code = PMPI_Comm_dup(comm(c), &m);
    *made = OUT(m);
    return code;
}
int x_split(H c, int colour, int k, H *made) EXPORT(MPI_Comm_split);
int x_split(H c, int colour, int k, H *made) {
    MPI_Comm m;
    int code = PMPI_Comm_split(comm(c), colour == -32766 ? MPI_UNDEFINED : colour, k, &m);
    *made = m == MPI_COMM_NULL ? (H)0x100 : OUT(m);
    return code;
}
int x_free(H *c) EXPORT(MPI_Comm_free);
int x_free(H *c) {
    MPI_Comm m = comm(*c);
    int code = PMPI_Comm_free(&m);
    *c = (H)0x100;
    return code;
}
int x_keyval(void *copy, void *gone, int *key, void *extra) EXPORT(MPI_Comm_create_keyval);
int x_keyval(void *copy, void *gone, int *key, void *extra) {
    return PMPI_Comm_create_keyval((MPI_Comm_copy_attr_function *)copy,
                                   (MPI_Comm_delete_attr_function *)gone, key, extra);
}
int x_set_attr(H c, int key, void *value) EXPORT(MPI_Comm_set_attr);
int x_set_attr(H c, int key, void *value) { return PMPI_Comm_set_attr(comm(c), key, value); }
int x_delete_attr(H c, int key) EXPORT(MPI_Comm_delete_attr);
int x_delete_attr(H c, int key) { return PMPI_Comm_delete_attr(comm(c), key); }
int x_finalized(int *flag) EXPORT(MPI_Finalized);
int x_finalized(int *flag) { return PMPI_Finalized(flag); }
int x_op(MPI_User_function *f, int commute, H *made) EXPORT(MPI_Op_create);
int x_op(MPI_User_function *f, int commute, H *made) {
    MPI_Op m;
    int code = PMPI_Op_create(f, commute, &m);
    *made = OUT(m);
    return code;
}

/* The new communicator is written when the request completes. */
static MPI_Comm *pending_comm;
static H *pending_place;
static H pending_request;
int x_idup(H c, H *made, H *r) EXPORT(MPI_Comm_idup);
int x_idup(H c, H *made, H *r) {
    MPI_Request q;
    pending_comm = malloc(sizeof *pending_comm);
    pending_place = made;
    int code = PMPI_Comm_idup(comm(c), pending_comm, &q);
    pending_request = *r = request_out(q);
    return code;
}

/* ---- collectives: each blocking, and with a request */

#define LIST(...) __VA_ARGS__
#define BOTH(Name, Iname, PARAMETERS, ...)                                                          \
    int x_##Name(LIST PARAMETERS) EXPORT(MPI_##Name);                                               \
    int x_##Name(LIST PARAMETERS) { return PMPI_##Name(__VA_ARGS__); }                              \
    int x_I##Iname(LIST PARAMETERS, H *r) EXPORT(MPI_I##Iname);                                     \
    int x_I##Iname(LIST PARAMETERS, H *r) {                                                         \
        MPI_Request q;                                                                              \
        int code = PMPI_I##Iname(__VA_ARGS__, &q);                                                  \
        *r = request_out(q);                                                                        \
        return code;                                                                                \
    }

BOTH(Barrier, barrier, (H c), comm(c))
BOTH(Bcast, bcast, (void *b, int n, H t, int root, H c), b, n, type(t), root, comm(c))
BOTH(Scatter, scatter, (const void *s, int n, H t, void *d, int m, H u, int root, H c),
     s, n, type(t), (void *)in(d), m, type(u), root, comm(c))
BOTH(Gather, gather, (const void *s, int n, H t, void *d, int m, H u, int root, H c),
     in(s), n, type(t), d, m, type(u), root, comm(c))
BOTH(Allgather, allgather, (const void *s, int n, H t, void *d, int m, H u, H c),
     in(s), n, type(t), d, m, type(u), comm(c))
BOTH(Allgatherv, allgatherv,
     (const void *s, int n, H t, void *d, const int *m, const int *at, H u, H c),
     in(s), n, type(t), d, m, at, type(u), comm(c))
BOTH(Alltoall, alltoall, (const void *s, int n, H t, void *d, int m, H u, H c),
     in(s), n, type(t), d, m, type(u), comm(c))
BOTH(Reduce, reduce, (const void *s, void *d, int n, H t, H o, int root, H c),
     in(s), d, n, type(t), op(o), root, comm(c))
BOTH(Allreduce, allreduce, (const void *s, void *d, int n, H t, H o, H c),
     in(s), d, n, type(t), op(o), comm(c))
BOTH(Reduce_scatter, reduce_scatter, (const void *s, void *d, const int *n, H t, H o, H c),
     in(s), d, n, type(t), op(o), comm(c))
BOTH(Reduce_scatter_block, reduce_scatter_block, (const void *s, void *d, int n, H t, H o, H c),
     in(s), d, n, type(t), op(o), comm(c))

/* ---- messages and requests */

int x_isend(const void *b, int n, H t, int to, int tag, H c, H *r) EXPORT(MPI_Isend);
int x_isend(const void *b, int n, H t, int to, int tag, H c, H *r) {
    MPI_Request q;
    int code = PMPI_Isend(b, n, type(t), to, tag, comm(c), &q);
    *r = request_out(q);
    return code;
}
int x_irecv(void *b, int n, H t, int from, int tag, H c, H *r) EXPORT(MPI_Irecv);
int x_irecv(void *b, int n, H t, int from, int tag, H c, H *r) {
    MPI_Request q;
    int code = PMPI_Irecv(b, n, type(t), source(from), tag, comm(c), &q);
    *r = request_out(q);
    return code;
}
int x_recv(void *b, int n, H t, int from, int tag, H c, Status *s) EXPORT(MPI_Recv);
int x_recv(void *b, int n, H t, int from, int tag, H c, Status *s) {
    MPI_Status st;
    int code = PMPI_Recv(b, n, type(t), source(from), tag, comm(c), &st);
    status_out(s, &st);
    return code;
}
int x_iprobe(int from, int tag, H c, int *flag, Status *s) EXPORT(MPI_Iprobe);
int x_iprobe(int from, int tag, H c, int *flag, Status *s) {
    MPI_Status st;
    int code = PMPI_Iprobe(source(from), tag, comm(c), flag, &st);
    if (code == 0 && *flag) {
        status_out(s, &st);
    }
    return code;
}
int x_test(H *r, int *flag, Status *s) EXPORT(MPI_Test);
int x_test(H *r, int *flag, Status *s) {
    MPI_Status st;
    MPI_Request q = request(*r);
    int dup = pending_comm && *r == pending_request;
    int code = PMPI_Test(&q, flag, &st);
    *r = request_out(q);
    if (code == 0 && *flag) {
        status_out(s, &st);
        if (dup) {
            *pending_place = OUT(*pending_comm);
            pending_comm = NULL;
        }
    }
    return code;
}
int x_testall(int n, H *r, int *flag, Status *s) EXPORT(MPI_Testall);
int x_testall(int n, H *r, int *flag, Status *s) {
    MPI_Request *q = malloc((n + 1) * sizeof *q);
    MPI_Status *st = calloc(n + 1, sizeof *st);
    for (int i = 0; i < n; i++) {
        q[i] = request(r[i]);
    }
    int code = PMPI_Testall(n, q, flag, st);
    for (int i = 0; i < n; i++) {
        r[i] = request_out(q[i]);
        if (s && (code || *flag)) {
            status_out(&s[i], &st[i]);
        }
    }
    free(q);
    free(st);
    return code;
}
int x_cancel(H *r) EXPORT(MPI_Cancel);
int x_cancel(H *r) {
    MPI_Request q = request(*r);
    return PMPI_Cancel(&q);
}
int x_count(const Status *s, H t, int *count) EXPORT(MPI_Get_count);
int x_count(const Status *s, H t, int *count) {
    MPI_Status st;
    status_in(&st, s);
    int code = PMPI_Get_count(&st, type(t), count);
    if (code == 0 && *count == MPI_UNDEFINED) {
        *count = -32766;
    }
    return code;
}
