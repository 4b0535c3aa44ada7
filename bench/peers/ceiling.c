/* The least memory work that an out-of-place collective over two ranks in one address space can do:
 * two threads, each bound to a CPU, with a spinning barrier at either end. Sums read each input once
 * and write each output once; the rest are copies, by memcpy. Plain C that the compiler vectorises.
 *
 * usage: ceiling [OPERATION] MAX_ITERATIONS REPETITIONS BYTES...
 * BYTES is the larger side of a rank; without OPERATION it is all_reduce. Prints "bytes
 * microseconds" as mpi_allreduce.c does. */
#define _GNU_SOURCE
#include <ctype.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static float *in[2], *out[2];
static long count, iterations, most, *sizes;
static int repetitions, number_of_sizes;

/* One counter a thread, on a cache line of its own: arrivals so far. */
static struct {
    _Alignas(128) atomic_long arrivals;
} threads[2];

static void meet(int me, long *arrivals) {
    atomic_store_explicit(&threads[me].arrivals, ++*arrivals, memory_order_release);
    while (atomic_load_explicit(&threads[1 - me].arrivals, memory_order_acquire) < *arrivals) {
#if defined(__x86_64__) || defined(__i386__)
        __builtin_ia32_pause();
#endif
    }
}

static void sum(const float *restrict a, const float *restrict b, float *restrict x,
                float *restrict y, long n) {
    for (long i = 0; i < n; i++) {
        float s = a[i] + b[i];
        x[i] = s;
        y[i] = s;
    }
}

static void add(const float *restrict a, const float *restrict b, float *restrict x, long n) {
    for (long i = 0; i < n; i++) {
        x[i] = a[i] + b[i];
    }
}

static void copy(float *to, const float *from, long n) {
    memcpy(to, from, (size_t)n * sizeof(float));
}

/* The work of thread `me`. Of operations with blocks a rank's block is half of its larger side. */
static void all_reduce(int me) {
    long half = count / 2, from = me * half, n = me == 0 ? half : count - half;
    sum(in[0] + from, in[1] + from, out[0] + from, out[1] + from, n);
}

static void reduce(int me) {
    long half = count / 2, from = me * half, n = me == 0 ? half : count - half;
    add(in[0] + from, in[1] + from, out[0] + from, n);
}

static void reduce_scatter(int me) {
    long block = count / 2;
    add(in[0] + me * block, in[1] + me * block, out[me], block);
}

static void all_gather(int me) {
    long block = count / 2;
    copy(out[me], in[0], block);
    copy(out[me] + block, in[1], block);
}

static void broadcast(int me) {
    copy(out[me], in[0], count);
}

static void gather(int me) {
    copy(out[0] + me * (count / 2), in[me], count / 2);
}

static void scatter(int me) {
    copy(out[me], in[0] + me * (count / 2), count / 2);
}

static void alltoall(int me) {
    long block = count / 2;
    copy(out[me], in[0] + me * block, block);
    copy(out[me] + block, in[1] + me * block, block);
}

static void sendrecv(int me) {
    copy(out[me], in[1 - me], count);
}

/* What an input holds, and what each operation leaves in an output. */
static float input(int rank, long i) {
    return (float)(rank * 1000 + i % 1000);
}

static float both(int me, long i) {
    (void)me;
    return input(0, i) + input(1, i);
}

static float block_of_both(int me, long i) {
    return both(me, me * (count / 2) + i);
}

static float gathered(int me, long i) {
    long block = count / 2;
    (void)me;
    return input((int)(i / block), i % block);
}

static float of_root(int me, long i) {
    (void)me;
    return input(0, i);
}

static float block_of_root(int me, long i) {
    return input(0, me * (count / 2) + i);
}

static float exchanged(int me, long i) {
    long block = count / 2;
    return input((int)(i / block), me * block + i % block);
}

static float of_other(int me, long i) {
    return input(1 - me, i);
}

static const struct operation {
    const char *name;
    void (*work)(int me);
    float (*expected)(int me, long i);
    int blocks, block_out, root_only;
} OPERATIONS[] = {
    {"all_reduce", all_reduce, both, 0, 0, 0},
    {"all_gather", all_gather, gathered, 1, 0, 0},
    {"reduce_scatter", reduce_scatter, block_of_both, 1, 1, 0},
    {"broadcast", broadcast, of_root, 0, 0, 0},
    {"reduce", reduce, both, 0, 0, 1},
    {"gather", gather, gathered, 1, 0, 1},
    {"scatter", scatter, block_of_root, 1, 1, 0},
    {"alltoall", alltoall, exchanged, 1, 0, 0},
    {"sendrecv", sendrecv, of_other, 0, 0, 0},
};
static const struct operation *op = OPERATIONS;

static void repeat(int me, long *arrivals) {
    for (long i = 0; i < iterations; i++) {
        meet(me, arrivals); /* both inputs are ready */
        op->work(me);
        meet(me, arrivals); /* both outputs are complete */
    }
}

/* Binds this thread to the me-th CPU that the process may use, if there are two. */
static void bind(int me) {
    cpu_set_t all, own;
    CPU_ZERO(&own);
    if (sched_getaffinity(0, sizeof all, &all) != 0 || CPU_COUNT(&all) < 2) {
        return;
    }
    int cpu = -1;
    for (int seen = -1; seen < me;) {
        seen += CPU_ISSET(++cpu, &all) ? 1 : 0;
    }
    CPU_SET(cpu, &own);
    sched_setaffinity(0, sizeof own, &own);
}

static double micros_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void *run(void *argument) {
    int me = *(int *)argument;
    long arrivals = 0;
    bind(me);
    double *micros = malloc(repetitions * sizeof(double));
    for (int s = 0; s < number_of_sizes; s++) {
        long bytes = sizes[s];
        meet(me, &arrivals);
        if (me == 0) {
            count = bytes / (long)sizeof(float);
            count -= op->blocks ? count % 2 : 0;
            iterations = (256L << 20) / bytes;
            iterations = iterations < 4 ? 4 : iterations > most ? most : iterations;
        }
        meet(me, &arrivals);
        /* Each thread touches its own rank's memory first, as ranks do. */
        size_t room = ((size_t)bytes + 63) / 64 * 64;
        in[me] = aligned_alloc(64, room);
        out[me] = aligned_alloc(64, room);
        for (long i = 0; i < count; i++) {
            in[me][i] = input(me, i);
            out[me][i] = -1;
        }
        meet(me, &arrivals);
        repeat(me, &arrivals);
        for (int r = 0; r < repetitions; r++) {
            meet(me, &arrivals);
            double start = micros_now();
            repeat(me, &arrivals);
            micros[r] = (micros_now() - start) / (double)iterations;
        }
        qsort(micros, repetitions, sizeof(double), ascending);
        long filled = op->root_only && me != 0 ? 0 : op->block_out ? count / 2 : count;
        for (long i = 0; i < filled; i++) {
            if (out[me][i] != op->expected(me, i)) {
                fprintf(stderr, "%s: element %ld of rank %d is %g, expected %g\n", op->name, i, me,
                        out[me][i], op->expected(me, i));
                exit(1);
            }
        }
        if (me == 0) {
            printf("%ld %.4f\n", bytes, micros[repetitions / 2]);
            fflush(stdout);
        }
        meet(me, &arrivals);
        free(in[me]);
        free(out[me]);
    }
    free(micros);
    return NULL;
}

int main(int argc, char **argv) {
    if (argc > 1 && !isdigit((unsigned char)argv[1][0])) {
        op = NULL;
        for (size_t i = 0; i < sizeof OPERATIONS / sizeof *OPERATIONS; i++) {
            if (strcmp(argv[1], OPERATIONS[i].name) == 0) {
                op = &OPERATIONS[i];
            }
        }
        argc--;
        argv++;
    }
    if (op == NULL || argc < 4) {
        fprintf(stderr, "usage: ceiling [OPERATION] MAX_ITERATIONS REPETITIONS BYTES...\n");
        return 2;
    }
    most = atol(argv[1]);
    repetitions = atoi(argv[2]);
    number_of_sizes = argc - 3;
    sizes = malloc(number_of_sizes * sizeof(long));
    for (int s = 0; s < number_of_sizes; s++) {
        sizes[s] = atol(argv[3 + s]);
    }
    int zero = 0, one = 1;
    pthread_t other;
    if (pthread_create(&other, NULL, run, &one) != 0) {
        fprintf(stderr, "cannot start a thread\n");
        return 1;
    }
    run(&zero);
    pthread_join(other, NULL);
    return 0;
}
