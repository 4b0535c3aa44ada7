/*
 * allReduce of the installed NCCL from C, timed as `jccl all_reduce --engine nccl` times it: one
 * thread, one stream and one device for each rank; two seconds of warm-up before the first size, unless WARMUPS is 0, and
 * as many warm-up calls for each size; the mean of many calls, averaged over ranks. The host's clock is read until the
 * stream is idle, which is found by polling, as in nccl-tests; jccl has events in the stream. Libraries are opened at run
 * time, so it builds without CUDA.
 *   nccl_allreduce [-G LAUNCHES] [-R 2] [-E CALLS] LIBNCCL LIBCUDART RANKS ITERATIONS WARMUPS ROUNDS BYTES...
 * -G captures the iterations as a graph and launches that; -R 2 takes memory from NCCL and registers it as
 * symmetric windows; both as in nccl-tests and in jccl.
 * -E CALLS times enqueuing alone, without what streams do: a host function holds each stream while that many calls
 * are made; then each rank prints "c RANK" and the least, tenth percentile and median of the rounds, in nanoseconds a call.
 * Else prints "BYTES MICROSECONDS" per round and size. With fewer devices than ranks they share, which
 * NCCL 2.30 and newer allow with NCCL_MULTI_RANK_GPU_ENABLE=1.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

typedef void *comm_t;
typedef void *stream_t;
typedef void *graph_t;
typedef void *window_t;
typedef struct {
    char internal[128];
} id_t128;

enum { FLOAT32 = 7, SUM = 0, NON_BLOCKING = 1, THREAD_LOCAL = 1, SYMMETRIC = 1, NOT_READY = 600, MOST_RANKS = 64 };

static int (*get_id)(id_t128 *);
static int (*init_rank)(comm_t *, int, id_t128, int);
static int (*all_reduce)(const void *, void *, size_t, int, int, comm_t, stream_t);
static int (*comm_destroy)(comm_t);
static const char *(*error_text)(int);
static int (*device_count)(int *);
static int (*set_device)(int);
static int (*cuda_malloc)(void **, size_t);
static int (*cuda_memset)(void *, int, size_t);
static int (*stream_create)(stream_t *, unsigned);
static int (*stream_query)(stream_t);

static int (*begin_capture)(stream_t, int);
static int (*end_capture)(stream_t, graph_t *);
static int (*instantiate)(graph_t *, graph_t, unsigned long long);
static int (*launch)(graph_t, stream_t);
static int (*destroy_exec)(graph_t);
static int (*destroy_graph)(graph_t);
static int (*nccl_malloc)(void **, size_t);
static int (*window_register)(comm_t, void *, size_t, window_t *, int);
static int (*window_deregister)(comm_t, window_t);

static int (*launch_host)(stream_t, void (*)(void *), void *);

static int launches, registration, calls;
static int ranks, iterations, warmups, rounds, nsizes, devices;
static size_t *sizes;
static id_t128 id;
static pthread_barrier_t barrier;
static double micros[MOST_RANKS];

static void check(int result, const char *what)
{
    if (result != 0) {
        fprintf(stderr, "nccl_allreduce: %s failed: %d %s\n", what, result, error_text(result));
        exit(1);
    }
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e6 + t.tv_nsec * 1e-3;
}

static void wait_for(stream_t stream)
{
    int result;
    do {
        result = stream_query(stream);
    } while (result == NOT_READY);
    check(result, "cudaStreamQuery");
}

// Rank 0 says when two seconds are over.
static void warm_up(int rank, comm_t comm, stream_t stream, float *send, float *recv, size_t bytes)
{
    static int over;
    double start = now();
    for (int done = 0; !done;) {
        for (int i = 0; i < 20; i++) {
            check(all_reduce(send, recv, bytes / sizeof *send, FLOAT32, SUM, comm, stream), "ncclAllReduce");
        }
        wait_for(stream);
        if (rank == 0) {
            over = now() - start >= 2e6;
        }
        pthread_barrier_wait(&barrier);
        done = over;
        pthread_barrier_wait(&barrier);
    }
}

static void measure(int rank, comm_t comm, stream_t stream, float *send, float *recv, size_t bytes)
{
    size_t count = bytes / sizeof *send;
    for (int i = 0; i < warmups; i++) {
        check(all_reduce(send, recv, count, FLOAT32, SUM, comm, stream), "ncclAllReduce");
    }
    wait_for(stream);
    graph_t graph = NULL, exec = NULL;
    if (launches > 0) {
        check(begin_capture(stream, THREAD_LOCAL), "cudaStreamBeginCapture");
        for (int i = 0; i < iterations; i++) {
            check(all_reduce(send, recv, count, FLOAT32, SUM, comm, stream), "ncclAllReduce");
        }
        check(end_capture(stream, &graph), "cudaStreamEndCapture");
        check(instantiate(&exec, graph, 0), "cudaGraphInstantiateWithFlags");
    }
    pthread_barrier_wait(&barrier);
    double start = now();
    for (int i = 0; i < launches; i++) {
        check(launch(exec, stream), "cudaGraphLaunch");
    }
    for (int i = 0; launches == 0 && i < iterations; i++) {
        check(all_reduce(send, recv, count, FLOAT32, SUM, comm, stream), "ncclAllReduce");
    }
    wait_for(stream);
    micros[rank] = (now() - start) / iterations / (launches > 0 ? launches : 1);
    pthread_barrier_wait(&barrier);
    if (launches > 0) {
        check(destroy_exec(exec), "cudaGraphExecDestroy");
        check(destroy_graph(graph), "cudaGraphDestroy");
    }
    if (rank == 0) {
        double sum = 0;
        for (int r = 0; r < ranks; r++) {
            sum += micros[r];
        }
        printf("%zu %.3f\n", bytes, sum / ranks);
        fflush(stdout);
    }
    pthread_barrier_wait(&barrier);
}

static void hold(void *released)
{
    while (!__atomic_load_n((int *)released, __ATOMIC_ACQUIRE)) {
        nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
    }
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void measure_enqueue(int rank, comm_t comm, stream_t stream, float *send, float *recv, size_t bytes)
{
    double *nanos = malloc((size_t)rounds * sizeof *nanos);
    // The first call connects the ranks, which waits for streams that are held.
    check(all_reduce(send, recv, bytes / sizeof *send, FLOAT32, SUM, comm, stream), "ncclAllReduce");
    wait_for(stream);
    pthread_barrier_wait(&barrier);
    for (int round = -rounds; nanos != NULL && round < rounds; round++) { // the first half is warm-up
        int released = 0;
        check(launch_host(stream, hold, &released), "cudaLaunchHostFunc");
        pthread_barrier_wait(&barrier);
        double start = now();
        for (int i = 0; i < calls; i++) {
            check(all_reduce(send, recv, bytes / sizeof *send, FLOAT32, SUM, comm, stream), "ncclAllReduce");
        }
        double spent = (now() - start) * 1e3 / calls;
        __atomic_store_n(&released, 1, __ATOMIC_RELEASE);
        wait_for(stream);
        if (round >= 0) {
            nanos[round] = spent;
        }
    }
    if (nanos != NULL) {
        qsort(nanos, (size_t)rounds, sizeof *nanos, ascending);
        printf("c %d %.1f %.1f %.1f\n", rank, nanos[0], nanos[rounds / 10], nanos[rounds / 2]);
    }
    free(nanos);
}

static void *run(void *argument)
{
    int rank = (int)(long)argument;
    size_t largest = 0;
    for (int i = 0; i < nsizes; i++) {
        largest = sizes[i] > largest ? sizes[i] : largest;
    }
    comm_t comm;
    stream_t stream;
    void *send, *recv;
    check(set_device(rank % devices), "cudaSetDevice");
    check(stream_create(&stream, NON_BLOCKING), "cudaStreamCreateWithFlags");
    int (*allocate)(void **, size_t) = registration == 2 ? nccl_malloc : cuda_malloc;
    check(allocate(&send, largest), registration == 2 ? "ncclMemAlloc" : "cudaMalloc");
    check(allocate(&recv, largest), registration == 2 ? "ncclMemAlloc" : "cudaMalloc");
    check(cuda_memset(send, 0, largest), "cudaMemset");
    pthread_barrier_wait(&barrier);
    check(init_rank(&comm, ranks, id, rank), "ncclCommInitRank");
    window_t windows[2] = {NULL, NULL};
    if (registration == 2) {
        check(window_register(comm, send, largest, &windows[0], SYMMETRIC), "ncclCommWindowRegister");
        check(window_register(comm, recv, largest, &windows[1], SYMMETRIC), "ncclCommWindowRegister");
        if (windows[0] == NULL || windows[1] == NULL) {
            fprintf(stderr, "nccl_allreduce: no symmetric memory here, so NCCL registers no window\n");
            exit(1);
        }
    }
    if (calls > 0) {
        measure_enqueue(rank, comm, stream, send, recv, sizes[0]);
    } else if (warmups > 0) {
        warm_up(rank, comm, stream, send, recv, sizes[0]);
    }
    for (int round = 0; calls == 0 && round < rounds; round++) {
        for (int i = 0; i < nsizes; i++) {
            measure(rank, comm, stream, send, recv, sizes[i]);
        }
    }
    for (int i = 0; i < 2; i++) {
        check(windows[i] == NULL ? 0 : window_deregister(comm, windows[i]), "ncclCommWindowDeregister");
    }
    check(comm_destroy(comm), "ncclCommDestroy");
    return NULL;
}

static void *symbol(void *library, const char *name)
{
    void *found = dlsym(library, name);
    if (found == NULL) {
        fprintf(stderr, "nccl_allreduce: %s\n", dlerror());
        exit(1);
    }
    return found;
}

int main(int argc, char **argv)
{
    while (argc > 3 && argv[1][0] == '-' && (argv[1][1] == 'G' || argv[1][1] == 'R' || argv[1][1] == 'E')) {
        *(argv[1][1] == 'G' ? &launches : argv[1][1] == 'R' ? &registration : &calls) = atoi(argv[2]);
        argc -= 2;
        argv += 2;
    }
    if (argc < 8 || launches < 0 || calls < 0 || (registration != 0 && registration != 2)) {
        fprintf(stderr, "usage: nccl_allreduce [-G LAUNCHES] [-R 2] [-E CALLS] LIBNCCL LIBCUDART RANKS ITERATIONS WARMUPS ROUNDS BYTES...\n");
        return 2;
    }
    void *nccl = dlopen(argv[1], RTLD_NOW), *cuda = nccl == NULL ? NULL : dlopen(argv[2], RTLD_NOW);
    if (cuda == NULL) {
        fprintf(stderr, "nccl_allreduce: %s\n", dlerror());
        return 1;
    }
    *(void **)&get_id = symbol(nccl, "ncclGetUniqueId");
    *(void **)&init_rank = symbol(nccl, "ncclCommInitRank");
    *(void **)&all_reduce = symbol(nccl, "ncclAllReduce");
    *(void **)&comm_destroy = symbol(nccl, "ncclCommDestroy");
    *(void **)&error_text = symbol(nccl, "ncclGetErrorString");
    *(void **)&device_count = symbol(cuda, "cudaGetDeviceCount");
    *(void **)&set_device = symbol(cuda, "cudaSetDevice");
    *(void **)&cuda_malloc = symbol(cuda, "cudaMalloc");
    *(void **)&cuda_memset = symbol(cuda, "cudaMemset");
    *(void **)&stream_create = symbol(cuda, "cudaStreamCreateWithFlags");
    *(void **)&stream_query = symbol(cuda, "cudaStreamQuery");
    if (calls > 0) {
        *(void **)&launch_host = symbol(cuda, "cudaLaunchHostFunc");
    }
    if (launches > 0) {
        *(void **)&begin_capture = symbol(cuda, "cudaStreamBeginCapture");
        *(void **)&end_capture = symbol(cuda, "cudaStreamEndCapture");
        *(void **)&instantiate = symbol(cuda, "cudaGraphInstantiateWithFlags");
        *(void **)&launch = symbol(cuda, "cudaGraphLaunch");
        *(void **)&destroy_exec = symbol(cuda, "cudaGraphExecDestroy");
        *(void **)&destroy_graph = symbol(cuda, "cudaGraphDestroy");
    }
    if (registration == 2) {
        *(void **)&nccl_malloc = symbol(nccl, "ncclMemAlloc");
        *(void **)&window_register = symbol(nccl, "ncclCommWindowRegister");
        *(void **)&window_deregister = symbol(nccl, "ncclCommWindowDeregister");
    }
    ranks = atoi(argv[3]);
    iterations = atoi(argv[4]);
    warmups = atoi(argv[5]);
    rounds = atoi(argv[6]);
    nsizes = argc - 7;
    sizes = malloc((size_t)nsizes * sizeof *sizes);
    for (int i = 0; sizes != NULL && i < nsizes; i++) {
        sizes[i] = strtoull(argv[7 + i], NULL, 10);
    }
    if (ranks < 1 || ranks > MOST_RANKS || iterations < 1 || warmups < 0 || rounds < 1 || sizes == NULL) {
        fprintf(stderr, "nccl_allreduce: ranks are 1 to %d, iterations and rounds 1 or more\n", MOST_RANKS);
        return 2;
    }
    check(device_count(&devices), "cudaGetDeviceCount");
    check(get_id(&id), "ncclGetUniqueId");
    pthread_barrier_init(&barrier, NULL, (unsigned)ranks);
    pthread_t threads[MOST_RANKS];
    for (int r = 0; r < ranks; r++) {
        pthread_create(&threads[r], NULL, run, (void *)(long)r);
    }
    for (int r = 0; r < ranks; r++) {
        pthread_join(threads[r], NULL);
    }
    return 0;
}
