/* Looks with statvfs, holds blocks with fallocate beyond the size of the file, where no reader sees
 * them. Where the file system knows no fallocate only the reserve is left. */
#include "main/aof_disk.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define RESERVE_LEAST (8 * BLASD_MIB)
#define RESERVE_MOST (128 * BLASD_MIB)
#define REWRITE_LEAST BLASD_MIB
#define REWRITE_MOST (2 * BLASD_GIB)
#define PATH_BYTES (PATH_MAX + NAME_MAX + 32)

static uint64_t within(uint64_t value, uint64_t least, uint64_t most) {
    return value < least ? least : value > most ? most : value;
}

/* Reads the name of the file appended to from Redis' manifest. A file with a higher number may be
 * there, which a rewrite has left that could not begin. */
static void find_newest(const struct aof_disk *disk, char name[NAME_MAX + 1]) {
    char path[PATH_BYTES], line[512], found[256];
    FILE *file;
    _Static_assert(sizeof found == NAME_MAX + 1, "sscanf below takes a file's name");
    name[0] = '\0';
    snprintf(path, sizeof path, "%s/appendonlydir/appendonly.aof.manifest", disk->dir);
    file = fopen(path, "re");
    if (file == NULL) return;
    while (fgets(line, sizeof line, file) != NULL)
        if (strstr(line, " type i") != NULL && sscanf(line, "file %255s ", found) == 1 &&
            strchr(found, '/') == NULL)
            memcpy(name, found, sizeof found);
    fclose(file);
}

static int open_file(const struct aof_disk *disk, const char *name) {
    char path[PATH_BYTES];
    if (name[0] == '\0') return -1;
    snprintf(path, sizeof path, "%s/appendonlydir/%s", disk->dir, name);
    return open(path, O_WRONLY | O_CLOEXEC | O_NOFOLLOW);
}

/* Gives back the blocks behind the end of a file that is appended to no more. */
static void trim(const struct aof_disk *disk, const char *name) {
    struct stat info;
    int fd = open_file(disk, name);
    if (fd < 0) return;
    if (fstat(fd, &info) == 0) (void)!ftruncate(fd, info.st_size);
    close(fd);
}

/* Has the blocks behind the end of the file allocated once a quarter of them is used up. `scarce`:
 * the disk had less than the reserve since the last look. */
static void hold_ahead(struct aof_disk *disk, bool scarce) {
    uint64_t ahead = disk->reserve / 2;
    struct stat info;
    int fd = open_file(disk, disk->newest);
    disk->appended = 0;
    disk->is_full = false;
    if (fd < 0) return;
    if (fstat(fd, &info) == 0) disk->appended = (uint64_t)info.st_size;
    disk->is_full = scarce && disk->ahead_end < disk->appended + ahead / 4;
    if (disk->ahead_end < disk->appended + ahead / 4 * 3) {
        if (fallocate(fd, FALLOC_FL_KEEP_SIZE, (off_t)disk->appended, (off_t)ahead) == 0)
            disk->ahead_end = disk->appended + ahead;
        else
            disk->is_full |= errno == ENOSPC;
    }
    close(fd);
}

int aof_disk_open(struct aof_disk *disk, const char *dir, uint64_t reserve, struct blasd_err *err) {
    struct statvfs info;
    uint64_t all;
    *disk = (struct aof_disk){.reserve = reserve};
    snprintf(disk->dir, sizeof disk->dir, "%s", dir);
    if (statvfs(dir, &info) != 0) return 0;
    all = (uint64_t)info.f_blocks * info.f_frsize;
    disk->free_bytes = (uint64_t)info.f_bavail * info.f_frsize;
    if (reserve == 0) disk->reserve = within(all / 16, RESERVE_LEAST, RESERVE_MOST);
    if (reserve == 0 && disk->reserve > all / 4) disk->reserve = all / 4;
    if (reserve <= all / 2) return 0;
    return blasd_fail(err, BLASD_E_invalid_field, "disk_reserve_bytes",
                      "the limit disk_reserve_bytes, %llu MiB, is more than half of the disk of "
                      "%.150s, %llu MiB: no job could be taken",
                      (unsigned long long)(reserve / BLASD_MIB), dir,
                      (unsigned long long)(all / 2 / BLASD_MIB));
}

void aof_disk_look(struct aof_disk *disk) {
    char newest[NAME_MAX + 1];
    struct statvfs info;
    bool was_short = disk->is_short;
    if (statvfs(disk->dir, &info) != 0) return;
    disk->free_bytes = (uint64_t)info.f_bavail * info.f_frsize;
    /* some more than the reserve is to be free before jobs are taken again */
    disk->is_short = disk->free_bytes < (disk->is_short ? disk->reserve / 4 * 5 : disk->reserve);
    find_newest(disk, newest);
    if (strcmp(newest, disk->newest) != 0) {
        trim(disk, disk->newest);
        memcpy(disk->newest, newest, sizeof newest);
        disk->ahead_end = 0;
    }
    hold_ahead(disk, was_short || disk->is_short);
}

void aof_disk_forget(struct aof_disk *disk) {
    disk->ahead_end = 0;
}

uint64_t aof_disk_rewrite_bytes(const struct aof_disk *disk) {
    return within(disk->free_bytes / 4, REWRITE_LEAST, REWRITE_MOST);
}
