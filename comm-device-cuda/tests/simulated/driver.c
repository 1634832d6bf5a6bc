/* A simulated CUDA driver: two GPUs, streams that take their time, memory that the CPU cannot touch.
 *
 * GPU memory is a memory file that is mapped twice: without any access where programs see it, so
 * that following a device pointer on the CPU is a fault as it is on a real GPU, and privately where
 * the simulator copies. Handles for other processes name the file by process and descriptor.
 *
 * CUDA_SIM_DELAY_US   longest time that a copy in a stream takes to begin
 * CUDA_SIM_FAIL_AFTER number of copies after which the GPU fails for good
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
    OK = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NOT_INITIALIZED = 3, INVALID_DEVICE = 101,
    INVALID_CONTEXT = 201, INVALID_HANDLE = 400, ILLEGAL_ADDRESS = 700,
};
enum { GPUS = 2, MOST = 256, MAGIC = 0x51C0DA };
typedef unsigned long long Address;

typedef struct { int device; } Context;
static Context contexts[GPUS];
static _Thread_local Context *current;
static atomic_int initialised, failed;
static atomic_long copies_left = -1;

/* Allocations of all kinds. */
typedef enum { FREE = 0, DEVICE, IMPORTED, PINNED } Kind;
typedef struct {
    Kind kind;
    Address address;
    size_t size;
    char *alias;
    int device, fd;
} Allocation;
static Allocation allocations[MOST];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static Allocation *find(Address at) {
    for (int i = 0; i < MOST; i++) {
        Allocation *a = &allocations[i];
        if (a->kind != FREE && at >= a->address && at - a->address < a->size) return a;
    }
    return NULL;
}

/* Where the simulator reaches an address of a program, or NULL if it is no valid range. */
static char *reach(Address at, size_t bytes) {
    char *where = (char *)at;
    pthread_mutex_lock(&lock);
    Allocation *a = find(at);
    if (a && a->kind != PINNED) {
        size_t offset = at - a->address;
        where = offset + bytes <= a->size ? a->alias + offset : NULL;
    }
    pthread_mutex_unlock(&lock);
    return where;
}

static int add(Allocation new, Address *address) {
    int result = OUT_OF_MEMORY;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < MOST && result; i++) {
        if (allocations[i].kind != FREE) continue;
        allocations[i] = new;
        *address = new.address;
        result = OK;
    }
    pthread_mutex_unlock(&lock);
    return result;
}

static int map(Kind kind, int fd, size_t size, int device, Address *address) {
    void *alias = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    void *seen = mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (alias == MAP_FAILED || seen == MAP_FAILED) return OUT_OF_MEMORY;
    return add((Allocation){kind, (Address)seen, size, alias, device, fd}, address);
}

static int unmap(Kind kind, Address address) {
    int result = INVALID_VALUE;
    pthread_mutex_lock(&lock);
    Allocation *a = find(address);
    if (a && a->kind == kind && a->address == address) {
        if (kind == PINNED) {
            free((void *)a->address);
        } else {
            munmap(a->alias, a->size);
            munmap((void *)a->address, a->size);
            close(a->fd);
        }
        a->kind = FREE;
        result = OK;
    }
    pthread_mutex_unlock(&lock);
    return result;
}

/* Events and streams. */
typedef struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    unsigned long recorded, done;
} Event;

typedef struct Job {
    struct Job *next;
    Event *event;
    unsigned long number;
    char *to, *from;
    size_t bytes;
} Job;

typedef struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    pthread_t thread;
    Job *first, **last;
    int busy, stop;
} Stream;

static void run_copy(char *to, const char *from, size_t bytes) {
    if (atomic_load(&copies_left) >= 0 && atomic_fetch_sub(&copies_left, 1) <= 0)
        atomic_store(&failed, ILLEGAL_ADDRESS);
    if (!atomic_load(&failed)) memmove(to, from, bytes);
}

static void *work(void *argument) {
    Stream *s = argument;
    const char *text = getenv("CUDA_SIM_DELAY_US");
    long longest = text ? atol(text) : 0;
    unsigned seed = (unsigned)(size_t)s;
    pthread_mutex_lock(&s->lock);
    for (;;) {
        while (!s->first && !s->stop) pthread_cond_wait(&s->changed, &s->lock);
        Job *job = s->first;
        if (!job) break;
        s->first = job->next;
        if (!s->first) s->last = &s->first;
        s->busy = 1;
        pthread_mutex_unlock(&s->lock);
        if (job->event) {
            pthread_mutex_lock(&job->event->lock);
            job->event->done = job->number;
            pthread_cond_broadcast(&job->event->changed);
            pthread_mutex_unlock(&job->event->lock);
        } else {
            if (longest) usleep(rand_r(&seed) % longest);
            run_copy(job->to, job->from, job->bytes);
        }
        free(job);
        pthread_mutex_lock(&s->lock);
        s->busy = 0;
        pthread_cond_broadcast(&s->changed);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

static void submit(Stream *s, Job job) {
    Job *copy = malloc(sizeof job);
    *copy = job;
    copy->next = NULL;
    pthread_mutex_lock(&s->lock);
    *s->last = copy;
    s->last = &copy->next;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
}

int cuInit(unsigned flags) {
    if (flags) return INVALID_VALUE;
    const char *text = getenv("CUDA_SIM_FAIL_AFTER");
    if (text) atomic_store(&copies_left, atol(text));
    for (int i = 0; i < GPUS; i++) contexts[i].device = i;
    atomic_store(&initialised, 1);
    return OK;
}

int cuDriverGetVersion(int *version) {
    *version = 12080;
    return OK;
}

int cuGetErrorName(int code, const char **name) {
    switch (code) {
    case OK: *name = "CUDA_SUCCESS"; break;
    case INVALID_VALUE: *name = "CUDA_ERROR_INVALID_VALUE"; break;
    case OUT_OF_MEMORY: *name = "CUDA_ERROR_OUT_OF_MEMORY"; break;
    case INVALID_CONTEXT: *name = "CUDA_ERROR_INVALID_CONTEXT"; break;
    case INVALID_HANDLE: *name = "CUDA_ERROR_INVALID_HANDLE"; break;
    case ILLEGAL_ADDRESS: *name = "CUDA_ERROR_ILLEGAL_ADDRESS"; break;
    default: *name = NULL; return INVALID_VALUE;
    }
    return OK;
}

int cuDeviceGetCount(int *count) {
    *count = GPUS;
    return atomic_load(&initialised) ? OK : NOT_INITIALIZED;
}

int cuDeviceGet(int *device, int ordinal) {
    *device = ordinal;
    return ordinal >= 0 && ordinal < GPUS ? OK : INVALID_DEVICE;
}

int cuDevicePrimaryCtxRetain(Context **context, int device) {
    *context = &contexts[device];
    return OK;
}

int cuDevicePrimaryCtxRelease_v2(int device) { return device < GPUS ? OK : INVALID_DEVICE; }

int cuCtxGetCurrent(Context **context) {
    *context = current;
    return OK;
}

int cuCtxSetCurrent(Context *context) {
    current = context;
    return OK;
}

/* Everything outside of streams happens at once. */
int cuCtxSynchronize(void) { return current ? atomic_load(&failed) : INVALID_CONTEXT; }

int cuMemAlloc_v2(Address *address, size_t bytes) {
    if (!current) return INVALID_CONTEXT;
    if (atomic_load(&failed)) return atomic_load(&failed);
    if (!bytes || bytes > (size_t)1 << 30) return bytes ? OUT_OF_MEMORY : INVALID_VALUE;
    int fd = memfd_create("simulated GPU memory", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, (off_t)bytes)) return OUT_OF_MEMORY;
    return map(DEVICE, fd, bytes, current->device, address);
}

int cuMemFree_v2(Address address) { return unmap(DEVICE, address); }

int cuMemHostAlloc(void **start, size_t bytes, unsigned flags) {
    if (!current) return INVALID_CONTEXT;
    (void)flags;
    Address address = 0;
    /* Not aligned to a page, as the driver promises nothing. */
    void *memory = NULL;
    if (posix_memalign(&memory, 64, bytes)) return OUT_OF_MEMORY;
    memset(memory, 0xEE, bytes);
    int added = add((Allocation){PINNED, (Address)memory, bytes, memory, 0, -1}, &address);
    *start = memory;
    return added;
}

int cuMemFreeHost(void *start) { return unmap(PINNED, (Address)start); }

int cuMemsetD8_v2(Address address, unsigned char value, size_t bytes) {
    char *to = reach(address, bytes);
    if (!to) return INVALID_VALUE;
    memset(to, value, bytes);
    return OK;
}

int cuMemcpy(Address to, Address from, size_t bytes) {
    char *target = reach(to, bytes), *source = reach(from, bytes);
    if (!current) return INVALID_CONTEXT;
    if (!target || !source) return INVALID_VALUE;
    run_copy(target, source, bytes);
    return atomic_load(&failed);
}

int cuMemcpyAsync(Address to, Address from, size_t bytes, Stream *stream) {
    char *target = reach(to, bytes), *source = reach(from, bytes);
    if (!current) return INVALID_CONTEXT;
    if (!target || !source) return INVALID_VALUE;
    if (atomic_load(&failed)) return atomic_load(&failed);
    submit(stream, (Job){.to = target, .from = source, .bytes = bytes});
    return OK;
}

int cuStreamCreate(Stream **stream, unsigned flags) {
    (void)flags;
    if (!current) return INVALID_CONTEXT;
    Stream *s = calloc(1, sizeof *s);
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->changed, NULL);
    s->last = &s->first;
    pthread_create(&s->thread, NULL, work, s);
    *stream = s;
    return OK;
}

int cuStreamSynchronize(Stream *s) {
    pthread_mutex_lock(&s->lock);
    while (s->first || s->busy) pthread_cond_wait(&s->changed, &s->lock);
    pthread_mutex_unlock(&s->lock);
    return atomic_load(&failed);
}

int cuStreamDestroy_v2(Stream *s) {
    pthread_mutex_lock(&s->lock);
    s->stop = 1;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
    pthread_join(s->thread, NULL);
    free(s);
    return OK;
}

int cuEventCreate(Event **event, unsigned flags) {
    (void)flags;
    Event *e = calloc(1, sizeof *e);
    pthread_mutex_init(&e->lock, NULL);
    pthread_cond_init(&e->changed, NULL);
    *event = e;
    return current ? OK : INVALID_CONTEXT;
}

int cuEventRecord(Event *e, Stream *stream) {
    pthread_mutex_lock(&e->lock);
    unsigned long number = ++e->recorded;
    pthread_mutex_unlock(&e->lock);
    submit(stream, (Job){.event = e, .number = number});
    return OK;
}

int cuEventSynchronize(Event *e) {
    pthread_mutex_lock(&e->lock);
    while (e->done < e->recorded) pthread_cond_wait(&e->changed, &e->lock);
    pthread_mutex_unlock(&e->lock);
    return atomic_load(&failed);
}

int cuEventDestroy_v2(Event *e) {
    free(e);
    return OK;
}

int cuPointerGetAttribute(void *value, int attribute, Address address) {
    int result = INVALID_VALUE;
    pthread_mutex_lock(&lock);
    Allocation *a = find(address);
    if (a && attribute == 2) {
        *(unsigned *)value = a->kind == PINNED ? 1 : 2;
        result = OK;
    } else if (a && attribute == 9) {
        *(int *)value = a->device;
        result = OK;
    }
    pthread_mutex_unlock(&lock);
    return result;
}

int cuMemGetAddressRange_v2(Address *base, size_t *size, Address address) {
    int result = INVALID_VALUE;
    pthread_mutex_lock(&lock);
    Allocation *a = find(address);
    if (a && a->kind != PINNED) {
        *base = a->address;
        *size = a->size;
        result = OK;
    }
    pthread_mutex_unlock(&lock);
    return result;
}

typedef struct {
    int magic, pid, fd, device;
    size_t size;
    char unused[40];
} Handle;

int cuIpcGetMemHandle(Handle *handle, Address address) {
    int result = INVALID_VALUE;
    pthread_mutex_lock(&lock);
    Allocation *a = find(address);
    if (a && a->kind == DEVICE) {
        *handle = (Handle){MAGIC, getpid(), a->fd, a->device, a->size, {0}};
        result = OK;
    }
    pthread_mutex_unlock(&lock);
    return result;
}

int cuIpcOpenMemHandle_v2(Address *address, Handle handle, unsigned flags) {
    (void)flags;
    /* The real driver refuses the process that exported the memory too. */
    if (handle.magic != MAGIC) return INVALID_HANDLE;
    if (handle.pid == getpid()) return INVALID_CONTEXT;
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/fd/%d", handle.pid, handle.fd);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0) return INVALID_HANDLE;
    return map(IMPORTED, fd, handle.size, handle.device, address);
}

int cuIpcCloseMemHandle(Address address) { return unmap(IMPORTED, address); }
