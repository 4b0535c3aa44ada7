/* Time of one MPI collective (float, sum, out of place) by size.
 *
 * usage: mpi_collectives OPERATION MAX_ITERATIONS REPETITIONS BYTES...
 * BYTES is the larger side of a rank, as in nccl-tests and in `jccl OPERATION`. Rank 0 prints "bytes
 * microseconds" for each: the mean over the ranks of the median over the repetitions of the mean
 * time of one call. The last result of each size is checked. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int rank, ranks;
static float *send_buffer, *recv_buffer;

/* Of operations with unequal blocks: where each starts, in elements, and how long it is. All to all,
 * the first pair says what goes out and the second what comes in; else both are the same. */
static int *send_counts, *send_starts, *recv_counts, *recv_starts;

/* Elements from one rank to another, as in `jccl alltoallv`: they grow with the distance. */
static int uneven(int n, int from, int to) {
    return ranks == 1 ? n : (int)(2L * n * ((to - from + ranks) % ranks) / (ranks - 1));
}

static void set_counts(int n, int all_to_all) {
    for (int j = 0; j < ranks; j++) {
        send_counts[j] = uneven(n, all_to_all ? rank : 0, j);
        recv_counts[j] = all_to_all ? uneven(n, j, rank) : send_counts[j];
        send_starts[j] = j == 0 ? 0 : send_starts[j - 1] + send_counts[j - 1];
        recv_starts[j] = j == 0 ? 0 : recv_starts[j - 1] + recv_counts[j - 1];
    }
}

/* What element i of a rank's send buffer holds: sums of it are exact. */
static float value(int r, long i) { return (float)(r + i % 1000); }

static void all_reduce(int n) {
    MPI_Allreduce(send_buffer, recv_buffer, n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}
static void all_gather(int n) {
    MPI_Allgather(send_buffer, n, MPI_FLOAT, recv_buffer, n, MPI_FLOAT, MPI_COMM_WORLD);
}
static void reduce_scatter(int n) {
    MPI_Reduce_scatter_block(send_buffer, recv_buffer, n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}
/* MPI has it in place only: the root's buffer is copied, as an out-of-place broadcast has to. */
static void broadcast(int n) {
    if (rank == 0) {
        memcpy(recv_buffer, send_buffer, (size_t)n * sizeof(float));
    }
    MPI_Bcast(rank == 0 ? send_buffer : recv_buffer, n, MPI_FLOAT, 0, MPI_COMM_WORLD);
}
static void reduce(int n) {
    MPI_Reduce(send_buffer, recv_buffer, n, MPI_FLOAT, MPI_SUM, 0, MPI_COMM_WORLD);
}
static void gather(int n) {
    MPI_Gather(send_buffer, n, MPI_FLOAT, recv_buffer, n, MPI_FLOAT, 0, MPI_COMM_WORLD);
}
static void scatter(int n) {
    MPI_Scatter(send_buffer, n, MPI_FLOAT, recv_buffer, n, MPI_FLOAT, 0, MPI_COMM_WORLD);
}
static void alltoall(int n) {
    MPI_Alltoall(send_buffer, n, MPI_FLOAT, recv_buffer, n, MPI_FLOAT, MPI_COMM_WORLD);
}
static void sendrecv(int n) {
    MPI_Sendrecv(send_buffer, n, MPI_FLOAT, (rank + 1) % ranks, 0, recv_buffer, n, MPI_FLOAT,
                 (rank + ranks - 1) % ranks, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}
static void all_gatherv(int n) {
    MPI_Allgatherv(send_buffer, send_counts[rank], MPI_FLOAT, recv_buffer, recv_counts, recv_starts,
                   MPI_FLOAT, MPI_COMM_WORLD);
}
static void reduce_scatterv(int n) {
    MPI_Reduce_scatter(send_buffer, recv_buffer, send_counts, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}
static void gatherv(int n) {
    MPI_Gatherv(send_buffer, send_counts[rank], MPI_FLOAT, recv_buffer, recv_counts, recv_starts,
                MPI_FLOAT, 0, MPI_COMM_WORLD);
}
static void scatterv(int n) {
    MPI_Scatterv(send_buffer, send_counts, send_starts, MPI_FLOAT, recv_buffer, recv_counts[rank],
                 MPI_FLOAT, 0, MPI_COMM_WORLD);
}
static void alltoallv(int n) {
    MPI_Alltoallv(send_buffer, send_counts, send_starts, MPI_FLOAT, recv_buffer, recv_counts,
                  recv_starts, MPI_FLOAT, MPI_COMM_WORLD);
}

static float sum(long i) { return (float)(ranks * (ranks - 1) / 2) + (float)ranks * (float)(i % 1000); }

/* What element i of a rank's result is, of blocks of n elements. */
static float of_all_reduce(long i, int n) { return sum(i); }
static float of_all_gather(long i, int n) { return value((int)(i / n), i % n); }
static float of_reduce_scatter(long i, int n) { return sum((long)rank * n + i); }
static float of_broadcast(long i, int n) { return value(0, i); }
static float of_scatter(long i, int n) { return value(0, (long)rank * n + i); }
static float of_alltoall(long i, int n) { return value((int)(i / n), (long)rank * n + i % n); }
static float of_sendrecv(long i, int n) { return value((rank + ranks - 1) % ranks, i); }

/* Which block element i of a receive buffer with unequal blocks lies in. */
static int block_of(long i) {
    int j = 0;
    while (i >= recv_starts[j] + recv_counts[j]) {
        j++;
    }
    return j;
}
static float of_all_gatherv(long i, int n) { return value(block_of(i), i - recv_starts[block_of(i)]); }
static float of_reduce_scatterv(long i, int n) { return sum(recv_starts[rank] + i); }
static float of_scatterv(long i, int n) { return value(0, recv_starts[rank] + i); }
static float of_alltoallv(long i, int n) {
    int j = block_of(i);
    long start = 0; /* of this rank's block in what rank j sends */
    for (int to = 0; to < rank; to++) {
        start += uneven(n, j, to);
    }
    return value(j, start + i - recv_starts[j]);
}

static const struct operation {
    const char *name;
    void (*run)(int);
    float (*expected)(long, int);
    int many_send, many_recv; /* whether a side has a block for each rank */
    int root_only;            /* whether only the root has a result */
    int uneven;               /* whether blocks are unequal */
} OPERATIONS[] = {
    {"all_reduce", all_reduce, of_all_reduce, 0, 0, 0, 0},
    {"all_gather", all_gather, of_all_gather, 0, 1, 0, 0},
    {"reduce_scatter", reduce_scatter, of_reduce_scatter, 1, 0, 0, 0},
    {"broadcast", broadcast, of_broadcast, 0, 0, 0, 0},
    {"reduce", reduce, of_all_reduce, 0, 0, 1, 0},
    {"gather", gather, of_all_gather, 0, 1, 1, 0},
    {"scatter", scatter, of_scatter, 1, 0, 0, 0},
    {"alltoall", alltoall, of_alltoall, 1, 1, 0, 0},
    {"sendrecv", sendrecv, of_sendrecv, 0, 0, 0, 0},
    {"all_gatherv", all_gatherv, of_all_gatherv, 0, 1, 0, 1},
    {"reduce_scatterv", reduce_scatterv, of_reduce_scatterv, 1, 0, 0, 1},
    {"gatherv", gatherv, of_all_gatherv, 0, 1, 1, 1},
    {"scatterv", scatterv, of_scatterv, 1, 0, 0, 1},
    {"alltoallv", alltoallv, of_alltoallv, 1, 1, 0, 1},
};

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Runs up to `most` iterations, not counted, and returns how many one repetition takes: where ranks
 * share a core an iteration may last 30 ms, and 0.2 s are enough for all of them. */
static long warm_up(const struct operation *op, int block, long most) {
    long done = 0;
    double start = MPI_Wtime();
    for (int enough = 0; !enough && done < most;) {
        long step = done < 4 ? 4 : done < most - done ? done : most - done;
        for (long i = 0; i < step; i++) {
            op->run(block);
        }
        done += step;
        enough = MPI_Wtime() - start > 0.1;
        MPI_Allreduce(MPI_IN_PLACE, &enough, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    }
    return done;
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    const struct operation *op = NULL;
    for (size_t i = 0; argc > 4 && i < sizeof OPERATIONS / sizeof *OPERATIONS; i++) {
        if (strcmp(argv[1], OPERATIONS[i].name) == 0) {
            op = &OPERATIONS[i];
        }
    }
    if (op == NULL) {
        fprintf(stderr, "usage: mpi_collectives OPERATION MAX_ITERATIONS REPETITIONS BYTES...\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    long most = atol(argv[2]);
    int repetitions = atoi(argv[3]);
    double *micros = malloc((size_t)repetitions * sizeof(double));
    send_counts = malloc(4 * (size_t)ranks * sizeof(int));
    send_starts = send_counts + ranks;
    recv_counts = send_starts + ranks;
    recv_starts = recv_counts + ranks;
    for (int a = 4; a < argc; a++) {
        long bytes = atol(argv[a]);
        int many = op->many_send || op->many_recv;
        int block = (int)(bytes / (long)sizeof(float) / (many ? ranks : 1));
        long sent = (long)block * (op->many_send ? ranks : 1);
        long received = (long)block * (op->many_recv ? ranks : 1);
        set_counts(block, op->many_send && op->many_recv);
        if (op->uneven && !op->many_send) {
            sent = send_counts[rank];
        }
        if (op->uneven && !op->many_recv) {
            received = recv_counts[rank];
        }
        size_t room = ((size_t)bytes + 63) / 64 * 64; /* the alignment of a JCCL buffer */
        send_buffer = aligned_alloc(64, room);
        recv_buffer = aligned_alloc(64, room);
        for (long i = 0; i < sent; i++) {
            send_buffer[i] = value(rank, i);
        }
        for (long i = 0; i < received; i++) {
            recv_buffer[i] = -1;
        }
        long iterations = (256L << 20) / bytes;
        iterations = iterations < 4 ? 4 : iterations > most ? most : iterations;
        iterations = warm_up(op, block, iterations);
        for (int r = 0; r < repetitions; r++) {
            MPI_Barrier(MPI_COMM_WORLD);
            double start = MPI_Wtime();
            for (long i = 0; i < iterations; i++) {
                op->run(block);
            }
            micros[r] = (MPI_Wtime() - start) * 1e6 / (double)iterations;
        }
        qsort(micros, (size_t)repetitions, sizeof(double), ascending);
        for (long i = 0; i < received && (rank == 0 || !op->root_only); i++) {
            if (recv_buffer[i] != op->expected(i, block)) {
                fprintf(stderr, "%s: element %ld of rank %d is %g, expected %g\n", op->name, i, rank,
                        recv_buffer[i], op->expected(i, block));
                MPI_Abort(MPI_COMM_WORLD, 1);
            }
        }
        double mine = micros[repetitions / 2], all;
        MPI_Reduce(&mine, &all, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
        if (rank == 0) {
            printf("%ld %.4f\n", bytes, all / ranks);
            fflush(stdout);
        }
        free(send_buffer);
        free(recv_buffer);
    }
    free(send_counts);
    free(micros);
    MPI_Finalize();
    return 0;
}
