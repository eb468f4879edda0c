/* Delay the syncs of a process, let them fail, or hang reads of RocksDB's tables, as a bad disk does.
 * Syncs are fsync, fdatasync, sync_file_range, and pwritev2 with RWF_DSYNC.
 *
 * Loaded with LD_PRELOAD. TASKRAFT_SYNC_DELAY names a control file. While the file exists, each
 * sync waits: for the number of milliseconds in the file, or, if the file contains "hang", until
 * the file is gone. If the file contains "fail", each sync fails with EIO; with "once", one sync
 * fails and removes the file. With "lie", each sync succeeds and does nothing. With "read", syncs
 * work, and each pread of a file "*.sst" waits until the file is gone. The file is read again at
 * each call, so that a test changes the fault at any moment, without any call of the process.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define POLL_MS 2

static void sleep_ms(long ms) {
    struct timespec span = {ms / 1000, (ms % 1000) * 1000000L};
    while (nanosleep(&span, &span) != 0) {
    }
}

/* Return 1 to sync, 0 to pretend success, or -1 with errno if this sync fails. */
static int wait_as_the_disk_does(void) {
    const char *path = getenv("TASKRAFT_SYNC_DELAY");
    if (path == NULL) {
        return 1;
    }
    for (;;) {
        char text[32] = {0};
        int file = open(path, O_RDONLY | O_CLOEXEC);
        if (file < 0) {
            return 1;
        }
        ssize_t count = read(file, text, sizeof text - 1);
        close(file);
        int is_once = strncmp(text, "once", 4) == 0;
        if (is_once && unlink(path) != 0) {
            return 1; /* another thread has this fault */
        }
        if (is_once || strncmp(text, "fail", 4) == 0) {
            errno = EIO;
            return -1;
        }
        if (strncmp(text, "lie", 3) == 0) {
            return 0;
        }
        if (strncmp(text, "read", 4) == 0) {
            return 1;
        }
        if (count <= 0 || strncmp(text, "hang", 4) != 0) {
            sleep_ms(count > 0 ? atol(text) : 0);
            return 1;
        }
        sleep_ms(POLL_MS);
    }
}

static int is_table(int descriptor) {
    char link[32], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t size = readlink(link, path, sizeof path);
    return size > 4 && size < (ssize_t)sizeof path && memcmp(path + size - 4, ".sst", 4) == 0;
}

static void wait_while_reads_hang(int descriptor) {
    const char *path = getenv("TASKRAFT_SYNC_DELAY");
    for (;;) {
        char text[8] = {0};
        int file = path == NULL ? -1 : open(path, O_RDONLY | O_CLOEXEC);
        if (file < 0) {
            return;
        }
        ssize_t count = read(file, text, sizeof text - 1);
        close(file);
        if (count <= 0 || strncmp(text, "read", 4) != 0 || !is_table(descriptor)) {
            return;
        }
        sleep_ms(POLL_MS);
    }
}

ssize_t pread(int descriptor, void *buffer, size_t size, off_t offset) {
    static ssize_t (*real)(int, void *, size_t, off_t);
    if (real == NULL) {
        real = (ssize_t (*)(int, void *, size_t, off_t))dlsym(RTLD_NEXT, "pread");
    }
    wait_while_reads_hang(descriptor);
    return real(descriptor, buffer, size, offset);
}

ssize_t pread64(int descriptor, void *buffer, size_t size, off64_t offset) {
    static ssize_t (*real)(int, void *, size_t, off64_t);
    if (real == NULL) {
        real = (ssize_t (*)(int, void *, size_t, off64_t))dlsym(RTLD_NEXT, "pread64");
    }
    wait_while_reads_hang(descriptor);
    return real(descriptor, buffer, size, offset);
}

int fsync(int descriptor) {
    static int (*real)(int);
    if (real == NULL) {
        real = (int (*)(int))dlsym(RTLD_NEXT, "fsync");
    }
    int verdict = wait_as_the_disk_does();
    return verdict > 0 ? real(descriptor) : verdict;
}

int fdatasync(int descriptor) {
    static int (*real)(int);
    if (real == NULL) {
        real = (int (*)(int))dlsym(RTLD_NEXT, "fdatasync");
    }
    int verdict = wait_as_the_disk_does();
    return verdict > 0 ? real(descriptor) : verdict;
}

/* The C library has two names for it. A disk that lies writes, and makes nothing durable. */
#define PWRITEV2(name)                                                                                       \
    ssize_t name(int descriptor, const struct iovec *parts, int count, off64_t offset, int flags) {         \
        static ssize_t (*real)(int, const struct iovec *, int, off64_t, int);                                \
        if (real == NULL) {                                                                                  \
            real = (ssize_t (*)(int, const struct iovec *, int, off64_t, int))dlsym(RTLD_NEXT, #name);       \
        }                                                                                                    \
        int verdict = (flags & RWF_DSYNC) == 0 ? 1 : wait_as_the_disk_does();                                \
        if (verdict == 0) {                                                                                  \
            flags &= ~RWF_DSYNC;                                                                             \
        }                                                                                                    \
        return verdict < 0 ? verdict : real(descriptor, parts, count, offset, flags);                        \
    }

PWRITEV2(pwritev2)
PWRITEV2(pwritev64v2)

int sync_file_range(int descriptor, off_t offset, off_t count, unsigned int flags) {
    static int (*real)(int, off_t, off_t, unsigned int);
    if (real == NULL) {
        real = (int (*)(int, off_t, off_t, unsigned int))dlsym(RTLD_NEXT, "sync_file_range");
    }
    int verdict = wait_as_the_disk_does();
    return verdict > 0 ? real(descriptor, offset, count, flags) : verdict;
}
