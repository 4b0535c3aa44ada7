/* What one step of Adam costs in C on the same bytes: threads read gradient, parameter and both
 * moments of float32 and write parameter and moments back, a contiguous share each; on request also
 * the parameter as bfloat16. "touch" does as little arithmetic as keeps every read and write, which
 * is the ceiling that memory bandwidth sets; "adam" does the step's own. Plain C that the compiler
 * vectorises; ordinary stores, memory from aligned_alloc as it comes.
 *
 * usage: adam_ceiling touch|adam none|bfloat16 THREADS REPETITIONS COUNT
 * Prints the repetitions' median time in milliseconds. */
#define _POSIX_C_SOURCE 200809L
#include <math.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static float *p, *m, *v, *g;
static uint16_t *t;
static long count;
static int threads, repetitions, adam, narrow;
static float decay = 1, keep1 = 0.9f, add1 = 0.1f, keep2 = 0.999f, add2 = 0.001f, rate = 1e-3f,
             root = 1, epsilon = 1e-8f;
static pthread_barrier_t barrier;
static double *millis;

static inline uint16_t bfloat16(float f) {
    uint32_t b;
    memcpy(&b, &f, 4);
    return (uint16_t)((b + 0x7fff + ((b >> 16) & 1)) >> 16);
}

static void touch(float *restrict p, float *restrict m, float *restrict v,
                  const float *restrict g, long n) {
    for (long i = 0; i < n; i++) {
        p[i] += g[i];
        m[i] += g[i];
        v[i] += g[i];
    }
}

static void touch_narrow(float *restrict p, float *restrict m, float *restrict v,
                         const float *restrict g, uint16_t *restrict t, long n) {
    for (long i = 0; i < n; i++) {
        p[i] += g[i];
        m[i] += g[i];
        v[i] += g[i];
        t[i] = bfloat16(p[i]);
    }
}

static inline float update(float *restrict p, float *restrict m, float *restrict v, float g) {
    *m = *m * keep1 + g * add1;
    *v = *v * keep2 + g * add2 * g;
    return *p = *p * decay - *m * rate / (sqrtf(*v) * root + epsilon);
}

static void step(float *restrict p, float *restrict m, float *restrict v, const float *restrict g,
                 long n) {
    for (long i = 0; i < n; i++) {
        update(p + i, m + i, v + i, g[i]);
    }
}

static void step_narrow(float *restrict p, float *restrict m, float *restrict v,
                        const float *restrict g, uint16_t *restrict t, long n) {
    for (long i = 0; i < n; i++) {
        t[i] = bfloat16(update(p + i, m + i, v + i, g[i]));
    }
}

static double millis_now(void) {
    struct timespec s;
    clock_gettime(CLOCK_MONOTONIC, &s);
    return (double)s.tv_sec * 1e3 + (double)s.tv_nsec * 1e-6;
}

static void *run(void *argument) {
    long me = (long)(intptr_t)argument;
    long from = count / threads * me;
    long n = me == threads - 1 ? count - from : count / threads;
    for (long i = from; i < from + n; i++) { /* touches every page */
        p[i] = (float)(i % 1000) * 1e-3f;
        g[i] = (float)(i % 999 - 499) * 1e-3f;
        m[i] = v[i] = 0;
        if (narrow) {
            t[i] = 0;
        }
    }
    for (int r = -2; r < repetitions; r++) {
        pthread_barrier_wait(&barrier);
        double start = millis_now();
        if (adam && narrow) {
            step_narrow(p + from, m + from, v + from, g + from, t + from, n);
        } else if (adam) {
            step(p + from, m + from, v + from, g + from, n);
        } else if (narrow) {
            touch_narrow(p + from, m + from, v + from, g + from, t + from, n);
        } else {
            touch(p + from, m + from, v + from, g + from, n);
        }
        pthread_barrier_wait(&barrier);
        if (me == 0 && r >= 0) {
            millis[r] = millis_now() - start;
        }
    }
    return NULL;
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void *allocate(size_t bytes) {
    void *memory = aligned_alloc(64, (bytes + 63) / 64 * 64);
    if (memory == NULL) {
        fprintf(stderr, "no memory for %zu bytes\n", bytes);
        exit(1);
    }
    return memory;
}

int main(int argc, char **argv) {
    if (argc != 6) {
        fprintf(stderr, "usage: adam_ceiling touch|adam none|bfloat16 THREADS REPETITIONS COUNT\n");
        return 2;
    }
    adam = strcmp(argv[1], "adam") == 0;
    narrow = strcmp(argv[2], "bfloat16") == 0;
    threads = atoi(argv[3]);
    repetitions = atoi(argv[4]);
    count = atol(argv[5]);
    size_t bytes = (size_t)count * 4;
    p = allocate(bytes);
    m = allocate(bytes);
    v = allocate(bytes);
    g = allocate(bytes);
    t = allocate(narrow ? bytes / 2 : 64);
    millis = allocate((size_t)repetitions * sizeof(double));
    pthread_barrier_init(&barrier, NULL, (unsigned)threads);
    pthread_t *others = allocate((size_t)threads * sizeof(pthread_t));
    for (long i = 1; i < threads; i++) {
        if (pthread_create(&others[i], NULL, run, (void *)(intptr_t)i) != 0) {
            fprintf(stderr, "cannot start a thread\n");
            return 1;
        }
    }
    run(NULL);
    for (long i = 1; i < threads; i++) {
        pthread_join(others[i], NULL);
    }
    qsort(millis, (size_t)repetitions, sizeof(double), ascending);
    if (p[1] == 1e-3f) {
        fprintf(stderr, "nothing was updated\n");
        return 1;
    }
    printf("%.3f\n", millis[repetitions / 2]);
    return 0;
}
