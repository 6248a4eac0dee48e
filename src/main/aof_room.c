/* Looks at the disk and at the files, and holds blocks with fallocate: those ahead of a file beyond
 * its size, so that nobody who reads it sees them. Where the file system knows no fallocate only
 * the reserve is left. */
#include "main/aof_room.h"

#include "main/aof_tail.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

_Static_assert(BLASD_AOF_NAME == NAME_MAX + 1, "a name of the manifest is a file's");

#define RESERVE_LEAST (8 * BLASD_MIB)
#define RESERVE_MOST (128 * BLASD_MIB)
#define REWRITE_LEAST BLASD_MIB
#define REWRITE_MOST (2 * BLASD_GIB)

static uint64_t within(uint64_t value, uint64_t least, uint64_t most) {
    return value < least ? least : value > most ? most : value;
}

static uint64_t half(const struct blasd_aof_room *room) {
    return room->reserve / 2;
}

static bool look_at_disk(struct blasd_aof_room *room, uint64_t *all) {
    struct statvfs disk;
    if (statvfs(room->dir, &disk) != 0) return false;
    room->free_bytes = (uint64_t)disk.f_bavail * disk.f_frsize;
    *all = (uint64_t)disk.f_blocks * disk.f_frsize;
    return true;
}

/* appendonly.aof.NUMBER.incr.aof; 0: it is another file. */
static unsigned long number_of(const char *name) {
    static const char begin[] = "appendonly.aof.";
    char *end;
    unsigned long number;
    if (strncmp(name, begin, sizeof begin - 1) != 0) return 0;
    number = strtoul(name + sizeof begin - 1, &end, 10);
    return strcmp(end, ".incr.aof") == 0 ? number : 0;
}

/* Who is appended to no more needs nothing ahead. */
static void trim(int dir_fd, const char *name, const struct stat *info) {
    int fd;
    if ((uint64_t)info->st_blocks * 512 <= (uint64_t)info->st_size + BLASD_MIB) return;
    fd = openat(dir_fd, name, O_WRONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0) return;
    (void)!ftruncate(fd, info->st_size);
    close(fd);
}

/* What is there, and the name and size of the file that Redis appends to. */
static uint64_t look_at_files(struct blasd_aof_room *room, const char *path, DIR *dir) {
    char newest[NAME_MAX + 1];
    bool named = blasd_aof_newest(path, newest);
    uint64_t size = 0;
    const int dir_fd = dirfd(dir);
    const struct dirent *entry;
    struct stat info;
    if (!named) newest[0] = '\0'; /* then it is the one of the highest number */
    room->bytes = room->appended = 0;
    while ((entry = readdir(dir)) != NULL) {
        unsigned long number = number_of(entry->d_name);
        if (fstatat(dir_fd, entry->d_name, &info, AT_SYMLINK_NOFOLLOW) != 0 ||
            !S_ISREG(info.st_mode))
            continue;
        room->bytes += (uint64_t)info.st_size;
        if (number > 0) room->appended += (uint64_t)info.st_size;
        if (!named && number > number_of(newest))
            snprintf(newest, sizeof newest, "%s", entry->d_name);
        if (strcmp(entry->d_name, newest) == 0) size = (uint64_t)info.st_size;
    }
    if (strcmp(newest, room->newest) != 0) {
        if (room->newest[0] != '\0' &&
            fstatat(dir_fd, room->newest, &info, AT_SYMLINK_NOFOLLOW) == 0)
            trim(dir_fd, room->newest, &info);
        memcpy(room->newest, newest, sizeof newest);
        room->ahead_end = 0;
    }
    return size;
}

/* Has the blocks behind the end of the file allocated, where a quarter of them is used up. */
static int hold_ahead(struct blasd_aof_room *room, int dir_fd, uint64_t size) {
    uint64_t ahead = half(room);
    int fd, code = 0;
    if (room->newest[0] == '\0' || room->rewriting || room->ahead_end >= size + ahead / 4 * 3)
        return 0;
    fd = openat(dir_fd, room->newest, O_WRONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0) return 0;
    code = fallocate(fd, FALLOC_FL_KEEP_SIZE, (off_t)size, (off_t)ahead) == 0 ? 0 : errno;
    if (code == 0) room->ahead_end = size + ahead;
    close(fd);
    return code;
}

static void path_of(const struct blasd_aof_room *room, const char *name, char path[PATH_MAX + 16]) {
    snprintf(path, PATH_MAX + 16, "%s/%s", room->dir, name);
}

static void look_at_ballast(struct blasd_aof_room *room) {
    char path[PATH_MAX + 16];
    struct stat info;
    path_of(room, "ballast", path);
    room->has_ballast = stat(path, &info) == 0 && (uint64_t)info.st_blocks * 512 >= half(room);
}

void blasd_aof_room_hold_ballast(struct blasd_aof_room *room) {
    char path[PATH_MAX + 16];
    int fd;
    if (room->has_ballast) return;
    path_of(room, "ballast", path);
    fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) return;
    room->has_ballast = fallocate(fd, 0, 0, (off_t)half(room)) == 0;
    close(fd);
    if (!room->has_ballast) unlink(path);
}

void blasd_aof_room_drop_ballast(struct blasd_aof_room *room) {
    char path[PATH_MAX + 16];
    path_of(room, "ballast", path);
    unlink(path);
    room->has_ballast = false;
}

/* Once it was short, some more than the reserve is to be free, what is to be ballast again
 * included, or it would be short again at once. */
static bool too_little(const struct blasd_aof_room *room) {
    uint64_t wanted = room->reserve;
    if (room->is_short) wanted += room->reserve / 4 + (room->has_ballast ? 0 : half(room));
    return room->free_bytes < wanted;
}

void blasd_aof_room_open(struct blasd_aof_room *room, const char *dir, uint64_t reserve) {
    uint64_t all = 0;
    *room = (struct blasd_aof_room){.reserve = reserve};
    snprintf(room->dir, sizeof room->dir, "%s", dir);
    look_at_disk(room, &all);
    if (reserve == 0) {
        room->reserve = within(all / 16, RESERVE_LEAST, RESERVE_MOST);
        if (room->reserve > all / 4) room->reserve = all / 4;
    }
    look_at_ballast(room);
    blasd_aof_room_look(room);
    if (room->is_short) blasd_aof_room_drop_ballast(room);
}

void blasd_aof_room_look(struct blasd_aof_room *room) {
    char path[PATH_MAX + 16];
    uint64_t all, size = 0;
    DIR *dir;
    if (!look_at_disk(room, &all)) return;
    room->is_short = too_little(room);
    path_of(room, "appendonlydir", path);
    dir = opendir(path);
    if (dir != NULL) {
        size = look_at_files(room, path, dir);
        if (hold_ahead(room, dirfd(dir), size) == ENOSPC && room->has_ballast &&
            !blasd_aof_room_rewritable(room)) {
            blasd_aof_room_drop_ballast(room);
            (void)hold_ahead(room, dirfd(dir), size);
        }
        closedir(dir);
    }
    if (!room->is_short && room->free_bytes >= room->reserve + half(room))
        blasd_aof_room_hold_ballast(room);
}

bool blasd_aof_room_rewritable(const struct blasd_aof_room *room) {
    return room->appended >= room->reserve / 4 && room->appended >= room->bytes / 2;
}

uint64_t blasd_aof_room_rewrite_bytes(const struct blasd_aof_room *room) {
    return within((room->free_bytes + room->bytes) / 4, REWRITE_LEAST, REWRITE_MOST);
}
