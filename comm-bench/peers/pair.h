/*
 * What bare programs of two pinned processes have in common: the rule by which they measure, which is
 * that of `commctl bench`. Batches of at least 30 us; the median over batches of rank 0.
 *
 * To be included once, after _GNU_SOURCE is defined. `orders` is two zeroed words in memory that both
 * processes share.
 */
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define BATCH_SECONDS 30e-6
#define LEAST_BATCHES 3
#define MOST_BATCHES 20000

#if defined(__x86_64__)
#define relax() __builtin_ia32_pause()
#else
#define relax() atomic_signal_fence(memory_order_seq_cst)
#endif

static int rank;
/* Rank 0's decisions: the number of calls of the next batch plus 1, 0 while there is none. */
static _Atomic long *orders;

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static int ascending(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

/* Rank 0 says how many calls the next batch has; the other rank waits for it. */
static long agree(long calls)
{
    static long round;
    _Atomic long *order = &orders[round++ % 2];
    if (rank == 0) {
        while (atomic_load_explicit(order, memory_order_acquire) != 0)
            relax();
        atomic_store_explicit(order, calls + 1, memory_order_release);
        return calls;
    }
    long value;
    while ((value = atomic_load_explicit(order, memory_order_acquire)) == 0)
        relax();
    atomic_store_explicit(order, 0, memory_order_release);
    return value - 1;
}

static double timed(void (*run)(size_t), size_t bytes, long calls)
{
    double start = now();
    for (long call = 0; call < calls; call++)
        run(bytes);
    return now() - start;
}

static double measure(void (*run)(size_t), size_t bytes, double seconds)
{
    if (rank != 0) {
        for (long calls; (calls = agree(0)) != 0;)
            timed(run, bytes, calls);
        return 0;
    }
    long calls = 1;
    double batch;
    for (;;) {
        batch = timed(run, bytes, agree(calls));
        double again = timed(run, bytes, agree(calls));
        batch = again < batch ? again : batch;
        if (batch >= BATCH_SECONDS)
            break;
        calls *= 2;
    }
    double *times = malloc(MOST_BATCHES * sizeof *times), start = now();
    size_t done = 0;
    while (done < LEAST_BATCHES || (done < MOST_BATCHES && now() - start < seconds))
        times[done++] = timed(run, bytes, agree(calls));
    agree(0);
    qsort(times, done, sizeof *times, ascending);
    double median = times[(done + 1) / 2 - 1] / (double)calls * 1e6;
    free(times);
    return median;
}

static void pin(int cpu)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    if (sched_setaffinity(0, sizeof set, &set) != 0) {
        perror("binding to a CPU");
        exit(1);
    }
}
