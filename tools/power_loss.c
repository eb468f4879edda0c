/* Keep a copy of everything that a process has made durable, as a disk without a cache would.
 *
 * Loaded with LD_PRELOAD. TASKRAFT_DURABLE_OF names the directory to watch, TASKRAFT_DURABLE_COPY
 * the directory of the copies, on the same file system. Each fsync or fdatasync of a file copies the
 * content of the file to "files/INODE"; each pwritev2 with RWF_DSYNC copies the bytes that it has
 * written. Each fsync of a directory writes its names to "names/INODE". A hard link "pins/INODE"
 * keeps the number of the inode from being used again. After a SIGKILL, the copies are what a disk
 * would hold if the power had failed instead.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

/* One copy at a time, so that an older content never replaces a newer one. */
static pthread_mutex_t copying = PTHREAD_MUTEX_INITIALIZER;

static void stop_because(const char *what) {
    fprintf(stderr, "power_loss: %s: %s\n", what, strerror(errno));
    abort();
}

static void name_of(char *text, const char *kind, ino_t inode, const char *suffix) {
    snprintf(text, PATH_MAX, "%s/%s/%llu%s", getenv("TASKRAFT_DURABLE_COPY"), kind,
             (unsigned long long)inode, suffix);
}

static int is_watched(int descriptor) {
    char link[64], target[PATH_MAX];
    const char *watched = getenv("TASKRAFT_DURABLE_OF");
    if (watched == NULL || getenv("TASKRAFT_DURABLE_COPY") == NULL) {
        return 0;
    }
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t length = readlink(link, target, sizeof target - 1);
    if (length < 0) {
        return 0;
    }
    target[length] = 0;
    size_t size = strlen(watched);
    return strncmp(target, watched, size) == 0 && (target[size] == '/' || target[size] == 0);
}

/* Read a file by a descriptor that may only be open for writing. */
static int open_to_read(int descriptor) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    return open(link, O_RDONLY | O_CLOEXEC);
}

static char block[1 << 16];

static void copy_file(int descriptor, ino_t inode) {
    char link[64], pin[PATH_MAX], fresh[PATH_MAX], final[PATH_MAX];
    name_of(fresh, "files", inode, ".new");
    name_of(final, "files", inode, "");
    name_of(pin, "pins", inode, "");
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    int source = open_to_read(descriptor);
    int target = open(fresh, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (source < 0 || target < 0) {
        stop_because(fresh);
    }
    ssize_t count;
    while ((count = read(source, block, sizeof block)) > 0) {
        if (write(target, block, count) != count) {
            stop_because(fresh);
        }
    }
    close(source);
    close(target);
    /* A file without a name left cannot be linked, and needs no pin. */
    linkat(AT_FDCWD, link, AT_FDCWD, pin, AT_SYMLINK_FOLLOW);
    if (rename(fresh, final) != 0) {
        stop_because(final);
    }
}

/* Copy the bytes of one write; return whether the file has a copy to write them to. A kill may leave
 * a part of the bytes, as a power loss during the write does. */
static int copy_bytes(int descriptor, ino_t inode, off64_t first, ssize_t left) {
    char final[PATH_MAX];
    name_of(final, "files", inode, "");
    int target = open(final, O_WRONLY | O_CLOEXEC);
    if (target < 0) {
        return 0;
    }
    int source = open_to_read(descriptor);
    if (source < 0) {
        stop_because(final);
    }
    while (left > 0) {
        size_t size = left < (ssize_t)sizeof block ? (size_t)left : sizeof block;
        ssize_t count = pread(source, block, size, first);
        if (count <= 0 || pwrite(target, block, count, first) != count) {
            stop_because(final);
        }
        first += count;
        left -= count;
    }
    close(source);
    close(target);
    return 1;
}

static void copy_names(int descriptor, ino_t inode) {
    char link[64], fresh[PATH_MAX], final[PATH_MAX];
    name_of(fresh, "names", inode, ".new");
    name_of(final, "names", inode, "");
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    DIR *directory = opendir(link);
    FILE *list = fopen(fresh, "we");
    if (directory == NULL || list == NULL) {
        stop_because(fresh);
    }
    struct dirent *entry;
    while ((entry = readdir(directory)) != NULL) {
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) {
            fprintf(list, "%llu %c %s\n", (unsigned long long)entry->d_ino,
                    entry->d_type == DT_DIR ? 'd' : 'f', entry->d_name);
        }
    }
    closedir(directory);
    if (fclose(list) != 0 || rename(fresh, final) != 0) {
        stop_because(final);
    }
}

/* Copy a file or the names of a directory; of a file only "count" bytes, unless "count" is negative
 * or the file has no copy yet. */
static void make_durable(int descriptor, off64_t first, ssize_t count) {
    struct stat status;
    int before = errno;
    if (is_watched(descriptor) && fstat(descriptor, &status) == 0) {
        pthread_mutex_lock(&copying);
        if (S_ISREG(status.st_mode)) {
            if (count < 0 || !copy_bytes(descriptor, status.st_ino, first, count)) {
                copy_file(descriptor, status.st_ino);
            }
        } else if (S_ISDIR(status.st_mode)) {
            copy_names(descriptor, status.st_ino);
        }
        pthread_mutex_unlock(&copying);
    }
    errno = before;
}

int fsync(int descriptor) {
    static int (*real)(int);
    if (real == NULL) {
        real = (int (*)(int))dlsym(RTLD_NEXT, "fsync");
    }
    int result = real(descriptor);
    if (result == 0) {
        make_durable(descriptor, 0, -1);
    }
    return result;
}

int fdatasync(int descriptor) {
    static int (*real)(int);
    if (real == NULL) {
        real = (int (*)(int))dlsym(RTLD_NEXT, "fdatasync");
    }
    int result = real(descriptor);
    if (result == 0) {
        make_durable(descriptor, 0, -1);
    }
    return result;
}

/* The C library has two names for it. */
#define PWRITEV2(name)                                                                                       \
    ssize_t name(int descriptor, const struct iovec *parts, int count, off64_t offset, int flags) {         \
        static ssize_t (*real)(int, const struct iovec *, int, off64_t, int);                                \
        if (real == NULL) {                                                                                  \
            real = (ssize_t (*)(int, const struct iovec *, int, off64_t, int))dlsym(RTLD_NEXT, #name);       \
        }                                                                                                    \
        ssize_t result = real(descriptor, parts, count, offset, flags);                                      \
        if (result >= 0 && (flags & RWF_DSYNC) != 0) {                                                       \
            make_durable(descriptor, offset, result);                                                        \
        }                                                                                                    \
        return result;                                                                                       \
    }

PWRITEV2(pwritev2)
PWRITEV2(pwritev64v2)
