/* The least work that an out-of-place allreduce over two ranks in one address space can do: two
 * threads read both inputs once and write both outputs once, half of the elements each, with a
 * spinning barrier at either end. Plain C that the compiler vectorises; no library.
 *
 * usage: ceiling MAX_ITERATIONS REPETITIONS BYTES...
 * Prints "bytes microseconds" as mpi_allreduce.c does. */
#define _POSIX_C_SOURCE 200809L
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
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

static void repeat(int me, long *arrivals) {
    long from = me * (count / 2), n = me == 0 ? count / 2 : count - count / 2;
    for (long i = 0; i < iterations; i++) {
        meet(me, arrivals); /* both inputs are ready */
        sum(in[0] + from, in[1] + from, out[0] + from, out[1] + from, n);
        meet(me, arrivals); /* both outputs are complete */
    }
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
    double *micros = malloc(repetitions * sizeof(double));
    for (int s = 0; s < number_of_sizes; s++) {
        long bytes = sizes[s];
        meet(me, &arrivals);
        if (me == 0) {
            count = bytes / (long)sizeof(float);
            iterations = (256L << 20) / bytes;
            iterations = iterations < 4 ? 4 : iterations > most ? most : iterations;
        }
        meet(me, &arrivals);
        /* Each thread touches its own rank's memory first, as ranks do. */
        size_t room = ((size_t)bytes + 63) / 64 * 64;
        in[me] = aligned_alloc(64, room);
        out[me] = aligned_alloc(64, room);
        for (long i = 0; i < count; i++) {
            in[me][i] = (float)(me + i % 1000);
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
        for (long i = 0; i < count; i++) {
            float expected = (float)(1 + 2 * (i % 1000));
            if (out[me][i] != expected) {
                fprintf(stderr, "element %ld is %g, expected %g\n", i, out[me][i], expected);
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
    if (argc < 4) {
        fprintf(stderr, "usage: ceiling MAX_ITERATIONS REPETITIONS BYTES...\n");
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
