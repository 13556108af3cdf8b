/* The wall clock of a server that a test can move while the server runs.
 *
 * It is loaded before the C library (LD_PRELOAD) and adds to every answer of the wall clock what the first eight bytes of the file
 * named by TIDEGATE_CLOCK_OFFSET say, in microseconds. The file is mapped, so a change is seen at the next question. The monotonic clock
 * is left alone: no machine ever moves it. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

typedef int ask(clockid_t, struct timespec *);

static const volatile int64_t *offset_us;
static ask *real;

__attribute__((constructor)) static void start(void) {
    real = (ask *)dlsym(RTLD_NEXT, "clock_gettime");
    const char *path = getenv("TIDEGATE_CLOCK_OFFSET");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0) return;
    void *page = mmap(NULL, sizeof *offset_us, PROT_READ, MAP_SHARED, file, 0);
    if (page != MAP_FAILED) offset_us = page;
    close(file);
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    /* Other constructors may ask before ours has run. */
    int failed = real ? real(clock, now) : (int)syscall(SYS_clock_gettime, clock, now);
    if (failed || !offset_us || (clock != CLOCK_REALTIME && clock != CLOCK_REALTIME_COARSE)) return failed;
    int64_t us = *offset_us;
    int64_t ns = now->tv_nsec + us % 1000000 * 1000;
    now->tv_sec += us / 1000000;
    if (ns >= 1000000000) now->tv_sec += 1, ns -= 1000000000;
    if (ns < 0) now->tv_sec -= 1, ns += 1000000000;
    now->tv_nsec = ns;
    return 0;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    (void)zone;
    struct timespec precise;
    int failed = clock_gettime(CLOCK_REALTIME, &precise);
    if (failed) return failed;
    now->tv_sec = precise.tv_sec;
    now->tv_usec = precise.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *now) {
    struct timespec precise;
    if (clock_gettime(CLOCK_REALTIME, &precise)) return (time_t)-1;
    if (now) *now = precise.tv_sec;
    return precise.tv_sec;
}
