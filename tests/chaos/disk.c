/* A disk that fails: loaded before libc (LD_PRELOAD), it fails or delays calls that concern a folder.

   cc -shared -fPIC -o disk.so disk.c -ldl
   break_disk("/a/folder", ENOSPC, CREATE | WRITE, 30, -1, 0): from call 30 on there is no space. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { CREATE = 1, OPEN_TO_WRITE = 2, WRITE = 4, READ = 8 };

static char folder[PATH_MAX];
static int error, kinds, microseconds;
static atomic_long before, failures; /* calls that still succeed; calls that fail, -1 for all */

void break_disk(const char *path, int number, int which, long first, long count, int delay) {
    before = first;
    failures = count;
    error = number;
    kinds = which;
    microseconds = delay;
    snprintf(folder, sizeof folder, "%s", path);
}

/* Whether a call fails that concerns a path, or if there is none, an open file. */
static int fails(int kind, const char *path, int file) {
    char link[64], name[PATH_MAX];
    if (!folder[0] || !(kinds & kind)) return 0;
    if (!path) {
        snprintf(link, sizeof link, "/proc/self/fd/%d", file);
        ssize_t end = readlink(link, name, sizeof name - 1);
        if (end < 0) return 0;
        name[end] = 0, path = name;
    }
    size_t length = strlen(folder);
    if (strncmp(path, folder, length) || (path[length] && path[length] != '/')) return 0;
    if (atomic_fetch_sub(&before, 1) > 0) return 0;
    if (microseconds) usleep(microseconds);
    if (!error || (failures >= 0 && atomic_fetch_sub(&failures, 1) <= 0)) return 0;
    errno = error;
    return 1;
}

#define WRAP(result, name, kind, path, file, parameters, arguments)                                \
    result name parameters {                                                                       \
        static result(*real) parameters;                                                           \
        if (!real) real = (result(*) parameters)dlsym(RTLD_NEXT, #name);                           \
        return fails(kind, path, file) ? -1 : real arguments;                                      \
    }
#define OPEN(name, parameters, arguments)                                                          \
    int name parameters {                                                                          \
        static int(*real) parameters;                                                              \
        mode_t mode = 0;                                                                           \
        if (flags & (O_CREAT | __O_TMPFILE)) {                                                     \
            va_list list;                                                                          \
            va_start(list, flags);                                                                 \
            mode = va_arg(list, mode_t);                                                           \
            va_end(list);                                                                          \
        }                                                                                          \
        if (!real) real = (int(*) parameters)dlsym(RTLD_NEXT, #name);                              \
        int kind = (flags & O_CREAT ? CREATE : 0) | (flags & O_ACCMODE ? OPEN_TO_WRITE : 0);       \
        return fails(kind, path, 0) ? -1 : real arguments;                                         \
    }

OPEN(open, (const char *path, int flags, ...), (path, flags, mode))
OPEN(open64, (const char *path, int flags, ...), (path, flags, mode))
OPEN(openat, (int at, const char *path, int flags, ...), (at, path, flags, mode))
OPEN(openat64, (int at, const char *path, int flags, ...), (at, path, flags, mode))
WRAP(int, mkdir, CREATE, path, 0, (const char *path, mode_t mode), (path, mode))
WRAP(int, rename, CREATE, to, 0, (const char *from, const char *to), (from, to))
WRAP(int, unlink, OPEN_TO_WRITE, path, 0, (const char *path), (path))
WRAP(ssize_t, write, WRITE, NULL, file, (int file, const void *data, size_t n), (file, data, n))
WRAP(ssize_t, pwrite, WRITE, NULL, file, (int file, const void *data, size_t n, off_t at),
     (file, data, n, at))
WRAP(ssize_t, pwrite64, WRITE, NULL, file, (int file, const void *data, size_t n, off64_t at),
     (file, data, n, at))
WRAP(int, fsync, WRITE, NULL, file, (int file), (file))
WRAP(int, fdatasync, WRITE, NULL, file, (int file), (file))
WRAP(int, ftruncate, WRITE, NULL, file, (int file, off_t length), (file, length))
WRAP(ssize_t, read, READ, NULL, file, (int file, void *data, size_t n), (file, data, n))
WRAP(ssize_t, pread, READ, NULL, file, (int file, void *data, size_t n, off_t at),
     (file, data, n, at))
WRAP(ssize_t, pread64, READ, NULL, file, (int file, void *data, size_t n, off64_t at),
     (file, data, n, at))
