/* A double of the four libraries, with as much of them as CallTest needs. */
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

typedef struct { char internal[128]; } ncclUniqueId;
typedef struct { char reserved[64]; } cudaIpcMemHandle_t;
typedef struct { char bytes[5]; } odd_t;

enum { ncclSuccess = 0, ncclInProgress = 7 };

/* ---- structs by value: what arrived */

unsigned char double_struct[128];
int64_t double_before;
int64_t double_after;

int cudaIpcOpenMemHandle(void** pointer, cudaIpcMemHandle_t handle, unsigned flags) {
    memcpy(double_struct, &handle, sizeof handle);
    double_before = (intptr_t) pointer;
    double_after = flags;
    memset(&handle, 0, sizeof handle); /* the callee's own copy */
    return 0;
}

/* ---- late results: as in NCCL, a group's communicators come from a thread that GroupEnd starts */

static void** slot;
static int state;
static int asked; /* for the state: what comes later does not come before */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t ask = PTHREAD_COND_INITIALIZER;

static void* initialize(void* unused) {
    (void) unused;
    pthread_mutex_lock(&lock);
    while (asked == 0) {
        pthread_cond_wait(&ask, &lock);
    }
    *slot = (void*) 0x1234567890abcdefL;
    state = ncclSuccess;
    pthread_mutex_unlock(&lock);
    return NULL;
}

int ncclGroupStart(void) {
    return ncclSuccess;
}

int ncclCommInitRank(void** comm, int nranks, ncclUniqueId id, int rank) {
    memcpy(double_struct, &id, sizeof id);
    double_before = nranks;
    double_after = rank;
    memset(&id, 0, sizeof id);
    slot = comm;
    return ncclSuccess;
}

int ncclGroupEnd(void) {
    pthread_t thread;
    state = ncclInProgress;
    if (pthread_create(&thread, NULL, initialize, NULL) != 0) {
        return 2;
    }
    pthread_detach(thread);
    return ncclInProgress;
}

int ncclCommGetAsyncError(void* comm, int* error) {
    (void) comm;
    pthread_mutex_lock(&lock);
    *error = state;
    asked = 1;
    pthread_cond_signal(&ask);
    pthread_mutex_unlock(&lock);
    return ncclSuccess;
}

/* ---- texts */

const char* ncclGetErrorString(int result) {
    return result == 2 ? "unhandled system error" : "unknown result code";
}

const char* ncclGetLastError(void* comm) {
    switch ((intptr_t) comm) {
        case 0: return NULL;
        case 1: return "";
        case 2: return "  socket to host-7 closed \n";
        case 3: return "Gr\xc3\xbc\xc3\x9f""e \xe2\x82\xac \xf0\x9f\x9a\x80";
        default: return "Latin-1 \xfc.";
    }
}

const char* cudaGetErrorName(int error) {
    switch (error) {
        case 2: return "cudaErrorMemoryAllocation";
        case 700: return "cudaErrorIllegalAddress";
        default: return "unrecognized error code";
    }
}

const char* cudaGetErrorString(int error) {
    return error == 2 ? "out of memory"
        : error == 700 ? "an illegal memory access was encountered" : "unrecognized error code";
}

const char* cublasGetStatusName(int status) {
    return status == 3 ? "CUBLAS_STATUS_ALLOC_FAILED" : "unrecognized status";
}

const char* cublasGetStatusString(int status) {
    return status == 3 ? "the resource allocation failed" : "unrecognized status";
}

int MPI_Error_string(int code, char* text, int* length) {
    if (code > 99) {
        return 13; /* MPI_ERR_ARG */
    }
    *length = sprintf(text, "MPI_ERR_%d: of the double", code);
    return 0;
}

/* ---- more arguments than registers, of each kind */

double jccl_floats(float a, double b, int c, float d, double e, int64_t f, double g, double h,
    double i, double j, double k, float l, double m) {
    return a + 2 * b + 3 * c + 4 * d + 5 * e + 6 * (double) f + 7 * g + 8 * h + 9 * i + 10 * j
        + 11 * k + 12 * l + 13 * m;
}

float jccl_float(float a, float b) {
    return a / b;
}

int64_t jccl_long(int64_t a, int b, int64_t c) {
    return a - b * c;
}

int jccl_odd(odd_t odd, int last) {
    return odd.bytes[0] + 10 * odd.bytes[1] + 100 * odd.bytes[2] + 1000 * odd.bytes[3]
        + 10000 * odd.bytes[4] + 100000 * last;
}
