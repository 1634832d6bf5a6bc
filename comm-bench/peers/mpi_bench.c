/*
 * What an MPI library reaches, measured by the rule of `commctl bench`: batches of at least 20 us,
 * the slowest rank's time of each batch (half of rank 0's round trip for pingpong), the median over
 * batches.
 *
 * Usage: mpi_bench OP,.. BYTES,.. SECONDS
 * Prints one line for each operation and size: OP RANKS BYTES MICROSECONDS
 *
 * Sizes are those of one rank's larger buffer, as in `commctl bench`; elements are floats.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BATCH_SECONDS 30e-6
#define LEAST_BATCHES 3
#define MOST_BATCHES 20000
#define MOST_CALLS (1L << 20)
#define ROUNDS 10
#define MOST_SIZES 64

static int rank, ranks;
static char *input, *output;

typedef void (*operation)(long count);

static void pingpong(long count)
{
    int last = ranks - 1;
    if (rank == 0) {
        MPI_Send(input, (int)count, MPI_FLOAT, last, 0, MPI_COMM_WORLD);
        MPI_Recv(output, (int)count, MPI_FLOAT, last, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    } else if (rank == last) {
        MPI_Recv(output, (int)count, MPI_FLOAT, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Send(input, (int)count, MPI_FLOAT, 0, 0, MPI_COMM_WORLD);
    }
}

static void all_reduce(long count)
{
    MPI_Allreduce(input, output, (int)count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

static void all_gather(long count)
{
    int block = (int)(count / ranks);
    MPI_Allgather(input, block, MPI_FLOAT, output, block, MPI_FLOAT, MPI_COMM_WORLD);
}

static void reduce_scatter(long count)
{
    MPI_Reduce_scatter_block(input, output, (int)(count / ranks), MPI_FLOAT, MPI_SUM,
                             MPI_COMM_WORLD);
}

static void broadcast(long count)
{
    MPI_Bcast(output, (int)count, MPI_FLOAT, 0, MPI_COMM_WORLD);
}

static void all_to_all(long count)
{
    int block = (int)(count / ranks);
    MPI_Alltoall(input, block, MPI_FLOAT, output, block, MPI_FLOAT, MPI_COMM_WORLD);
}

static const struct {
    const char *name;
    operation run;
    int in_blocks;
} operations[] = {
    {"pingpong", pingpong, 0},         {"all_reduce", all_reduce, 0},
    {"all_gather", all_gather, 1},     {"reduce_scatter", reduce_scatter, 1},
    {"broadcast", broadcast, 0},       {"all_to_all", all_to_all, 1},
};

static double timed(operation run, long count, long calls)
{
    double start = MPI_Wtime();
    for (long call = 0; call < calls; call++)
        run(count);
    return MPI_Wtime() - start;
}

static double slowest(double seconds)
{
    double result;
    MPI_Allreduce(&seconds, &result, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return result;
}

static int ascending(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

/* The median time of one call, in microseconds. */
static double measure(operation run, long count, double seconds)
{
    long calls = 1;
    double batch;
    /* The first calls also connect the ranks and touch the library's buffers. */
    for (;;) {
        batch = slowest(timed(run, count, calls));
        for (int again = 0; again < 2; again++) {
            double time = slowest(timed(run, count, calls));
            batch = time < batch ? time : batch;
        }
        if (batch >= BATCH_SECONDS || calls >= MOST_CALLS)
            break;
        calls *= 2;
    }
    long batches = (long)(seconds / batch);
    batches = batches < LEAST_BATCHES ? LEAST_BATCHES : batches;
    batches = batches > MOST_BATCHES ? MOST_BATCHES : batches;
    double *times = malloc((size_t)batches * sizeof *times);
    long in_round = (batches + ROUNDS - 1) / ROUNDS;
    double start = MPI_Wtime();
    long done = 0;
    int goes_on = 1;
    while (goes_on) {
        MPI_Barrier(MPI_COMM_WORLD);
        for (long batch_in_round = 0; batch_in_round < in_round && done < batches;
             batch_in_round++)
            times[done++] = timed(run, count, calls);
        goes_on = done < batches && (done < LEAST_BATCHES || MPI_Wtime() - start < seconds);
        MPI_Bcast(&goes_on, 1, MPI_INT, 0, MPI_COMM_WORLD);
    }
    int one_clock = run == pingpong;
    for (long index = 0; one_clock && rank != 0 && index < done; index++)
        times[index] = 0;
    MPI_Allreduce(MPI_IN_PLACE, times, (int)done, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    qsort(times, (size_t)done, sizeof *times, ascending);
    double median = times[(done + 1) / 2 - 1] / (double)calls * 1e6;
    free(times);
    return one_clock ? median / 2 : median;
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (argc != 4) {
        fprintf(stderr, "usage: mpi_bench OP,.. BYTES,.. SECONDS\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    long counts[MOST_SIZES], largest = 0;
    int sizes = 0;
    for (char *size = strtok(argv[2], ","); size && sizes < MOST_SIZES; size = strtok(NULL, ",")) {
        counts[sizes] = (atol(size) + 3) / 4;
        largest = counts[sizes] > largest ? counts[sizes] : largest;
        sizes++;
    }
    size_t bytes = (size_t)(largest + ranks) * sizeof(float);
    input = malloc(bytes);
    output = malloc(bytes);
    if (!input || !output)
        MPI_Abort(MPI_COMM_WORLD, 1);
    /* Zeros stay zeros however often they are added. */
    memset(input, 0, bytes);
    memset(output, 0, bytes);

    for (char *name = strtok(argv[1], ","); name; name = strtok(NULL, ",")) {
        for (size_t op = 0; op < sizeof operations / sizeof *operations; op++) {
            if (strcmp(name, operations[op].name) != 0)
                continue;
            long before = -1;
            for (int size = 0; size < sizes; size++) {
                long count = counts[size];
                if (operations[op].in_blocks)
                    count = (count + ranks - 1) / ranks * ranks;
                if (count == before)
                    continue;
                before = count;
                double us = measure(operations[op].run, count, atof(argv[3]));
                if (rank == 0) {
                    printf("%s %d %ld %.4f\n", name, ranks, count * 4, us);
                    fflush(stdout);
                }
            }
        }
    }
    free(input);
    free(output);
    MPI_Finalize();
    return 0;
}
