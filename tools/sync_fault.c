/* Delay fsync, fdatasync and sync_file_range of a process, as a slow or hung disk does.
 *
 * Loaded with LD_PRELOAD. TASKRAFT_SYNC_DELAY names a control file. While the file exists, each
 * sync waits: for the number of milliseconds in the file, or, if the file contains "hang", until
 * the file is gone. The file is read again at each sync, so that a test changes the fault at any
 * moment, without any call of the process.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define POLL_MS 2

static void sleep_ms(long ms) {
    struct timespec span = {ms / 1000, (ms % 1000) * 1000000L};
    while (nanosleep(&span, &span) != 0) {
    }
}

static void wait_as_the_disk_does(void) {
    const char *path = getenv("TASKRAFT_SYNC_DELAY");
    if (path == NULL) {
        return;
    }
    for (;;) {
        char text[32] = {0};
        int file = open(path, O_RDONLY | O_CLOEXEC);
        if (file < 0) {
            return;
        }
        ssize_t count = read(file, text, sizeof text - 1);
        close(file);
        if (count <= 0 || strncmp(text, "hang", 4) != 0) {
            sleep_ms(count > 0 ? atol(text) : 0);
            return;
        }
        sleep_ms(POLL_MS);
    }
}

int fsync(int descriptor) {
    static int (*real)(int);
    if (real == NULL) {
        real = (int (*)(int))dlsym(RTLD_NEXT, "fsync");
    }
    wait_as_the_disk_does();
    return real(descriptor);
}

int fdatasync(int descriptor) {
    static int (*real)(int);
    if (real == NULL) {
        real = (int (*)(int))dlsym(RTLD_NEXT, "fdatasync");
    }
    wait_as_the_disk_does();
    return real(descriptor);
}

int sync_file_range(int descriptor, off_t offset, off_t count, unsigned int flags) {
    static int (*real)(int, off_t, off_t, unsigned int);
    if (real == NULL) {
        real = (int (*)(int, off_t, off_t, unsigned int))dlsym(RTLD_NEXT, "sync_file_range");
    }
    wait_as_the_disk_does();
    return real(descriptor, offset, count, flags);
}
