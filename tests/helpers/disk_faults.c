/* Fail a call of the C library on one file, for tests: preloaded into a process (LD_PRELOAD).

   FAULT_CALL names the call, FAULT_PATH a part of the file's path, FAULT_NTH the first call that fails,
   FAULT_LAST the last one, FAULT_ERRNO the error. Calls are counted from when FAULT_CALL is set. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

static long count;

static int fails(const char *call, const char *path)
{
    const char *wanted = getenv("FAULT_CALL"), *part = getenv("FAULT_PATH");
    long number;
    if (!wanted || !part || strcmp(wanted, call) || !path || !strstr(path, part))
        return 0;
    number = __sync_add_and_fetch(&count, 1);
    if (number < atol(getenv("FAULT_NTH")) || number > atol(getenv("FAULT_LAST")))
        return 0;
    errno = atoi(getenv("FAULT_ERRNO"));
    return 1;
}

static int fails_open(const char *call, int descriptor)
{
    char link[64], path[4096];
    ssize_t length;
    if (!getenv("FAULT_CALL"))
        return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    length = readlink(link, path, sizeof path - 1);
    if (length < 0)
        return 0;
    path[length] = 0;
    return fails(call, path);
}

#define REAL(type, name, ...) ((type (*)(__VA_ARGS__))dlsym(RTLD_NEXT, name))

ssize_t read(int fd, void *to, size_t size)
{
    return fails_open("read", fd) ? -1 : REAL(ssize_t, "read", int, void *, size_t)(fd, to, size);
}
ssize_t pread64(int fd, void *to, size_t size, off64_t at)
{
    return fails_open("read", fd) ? -1 : REAL(ssize_t, "pread64", int, void *, size_t, off64_t)(fd, to, size, at);
}
ssize_t write(int fd, const void *from, size_t size)
{
    return fails_open("write", fd) ? -1 : REAL(ssize_t, "write", int, const void *, size_t)(fd, from, size);
}
int fsync(int fd)
{
    return fails_open("fsync", fd) ? -1 : REAL(int, "fsync", int)(fd);
}
int close(int fd)
{
    if (fails_open("close", fd)) {
        int error = errno;
        REAL(int, "close", int)(fd);
        errno = error;
        return -1;
    }
    return REAL(int, "close", int)(fd);
}
int ftruncate64(int fd, off64_t size)
{
    return fails_open("ftruncate", fd) ? -1 : REAL(int, "ftruncate64", int, off64_t)(fd, size);
}
int flock(int fd, int operation)
{
    return fails_open("flock", fd) ? -1 : REAL(int, "flock", int, int)(fd, operation);
}
int unlink(const char *path)
{
    return fails("unlink", path) ? -1 : REAL(int, "unlink", const char *)(path);
}
int link(const char *from, const char *to)
{
    return fails("link", from) ? -1 : REAL(int, "link", const char *, const char *)(from, to);
}
int linkat(int a, const char *from, int b, const char *to, int flags)
{
    return fails("link", from) ? -1
        : REAL(int, "linkat", int, const char *, int, const char *, int)(a, from, b, to, flags);
}
int rename(const char *from, const char *to)
{
    return fails("rename", from) ? -1 : REAL(int, "rename", const char *, const char *)(from, to);
}
int mkdir(const char *path, mode_t mode)
{
    return fails("mkdir", path) ? -1 : REAL(int, "mkdir", const char *, mode_t)(path, mode);
}
