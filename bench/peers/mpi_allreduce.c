/* Time of MPI_Allreduce (float, sum, out of place) by size.
 *
 * usage: mpi_allreduce MAX_ITERATIONS REPETITIONS BYTES...
 * Rank 0 prints "bytes microseconds": the median over the repetitions of the mean time of one call,
 * with the sizes, iteration counts, values and checks of PeerLoop.java. MPI_ALLREDUCE_THREADS says
 * for which threads MPI is initialized, as JCCL_MPI_THREADS does: multiple, serialized, or for one
 * if it is not set. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void repeat(const float *send, float *recv, int count, long times) {
    for (long i = 0; i < times; i++) {
        MPI_Allreduce(send, recv, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    }
}

int main(int argc, char **argv) {
    const char *threads = getenv("MPI_ALLREDUCE_THREADS");
    int wanted = threads == NULL                       ? MPI_THREAD_SINGLE
                 : strcmp(threads, "serialized") == 0 ? MPI_THREAD_SERIALIZED
                                                       : MPI_THREAD_MULTIPLE;
    int provided;
    MPI_Init_thread(&argc, &argv, wanted, &provided);
    if (argc < 4) {
        fprintf(stderr, "usage: mpi_allreduce MAX_ITERATIONS REPETITIONS BYTES...\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    int rank, size;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    long most = atol(argv[1]);
    int repetitions = atoi(argv[2]);
    double *micros = malloc(repetitions * sizeof(double));

    for (int a = 3; a < argc; a++) {
        long bytes = atol(argv[a]);
        int count = (int)(bytes / (long)sizeof(float));
        /* 64 bytes: the alignment of a JCCL buffer. */
        size_t room = ((size_t)bytes + 63) / 64 * 64;
        float *send = aligned_alloc(64, room);
        float *recv = aligned_alloc(64, room);
        for (int i = 0; i < count; i++) {
            send[i] = (float)(rank + i % 1000);
            recv[i] = -1;
        }
        long iterations = (256L << 20) / bytes;
        iterations = iterations < 4 ? 4 : iterations > most ? most : iterations;

        repeat(send, recv, count, iterations);
        for (int r = 0; r < repetitions; r++) {
            MPI_Barrier(MPI_COMM_WORLD);
            double start = MPI_Wtime();
            repeat(send, recv, count, iterations);
            micros[r] = (MPI_Wtime() - start) * 1e6 / (double)iterations;
        }
        qsort(micros, repetitions, sizeof(double), ascending);
        for (int i = 0; i < count; i++) {
            float expected = (float)(size * (size - 1) / 2 + size * (i % 1000));
            if (recv[i] != expected) {
                fprintf(stderr, "element %d is %g, expected %g\n", i, recv[i], expected);
                MPI_Abort(MPI_COMM_WORLD, 1);
            }
        }
        if (rank == 0) {
            printf("%ld %.4f\n", bytes, micros[repetitions / 2]);
            fflush(stdout);
        }
        free(send);
        free(recv);
    }
    free(micros);
    MPI_Finalize();
    return 0;
}
