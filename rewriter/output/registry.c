/* SPDX-License-Identifier: Apache-2.0
 *
 * registry.c: see registry.h. Each change is one rename or one unlink, so there is no lock and no
 * incomplete entry. No state, any thread.
 */
#include "rewriter/output/registry.h"
#include "common/fd.h"
#include "common/same.h"
#include "rewriter/elf/grow.h"

#include <dirent.h>
#include <fcntl.h>
#include <pwd.h>

#define SYSTEM_FOLDER "/var/lib/gpushare"
#define LIST          "patched"
#define NAME_SIZE     33    /* of an entry: 32 hexadecimal digits */
#define MOST          65536 /* entries: a user's list takes root no more than half a GiB to read */
#define TEXT_SIZE     (2 * 3 * PATH_MAX + 512)

/* The folder for files that outlive this user's programs, by the XDG base directory
 * specification. */
static bool find_user_folder(char folder[PATH_MAX])
{
    const char *state = secure_getenv("XDG_STATE_HOME"), *home = secure_getenv("HOME");
    const struct passwd *user;

    if (state != NULL && state[0] == '/')
        return snprintf(folder, PATH_MAX, "%s/gpushare", state) < PATH_MAX;
    if (home == NULL || home[0] != '/') {
        user = getpwuid(geteuid());
        home = user != NULL ? user->pw_dir : NULL;
    }
    return home != NULL && home[0] == '/' &&
           snprintf(folder, PATH_MAX, "%s/.local/state/gpushare", home) < PATH_MAX;
}

bool elf_registry_folder(char folder[PATH_MAX])
{
    const char *named = secure_getenv("GPUSHARE_STATE");
    char self[PATH_MAX + 64];

    if (named != NULL && named[0] == '/')
        return snprintf(folder, PATH_MAX, "%s", named) < PATH_MAX;
    if (gs_own_path(self, 2) &&
        access(strncat(self, "/runtime/libgpushare.so.1", 64), F_OK) == 0)
        return false; /* a build folder */
    if (geteuid() == 0)
        return snprintf(folder, PATH_MAX, "%s", SYSTEM_FOLDER) < PATH_MAX;
    return find_user_folder(folder);
}

/* Makes the missing folders of an absolute path. All users may enter root's, whatever its umask:
 * their programs load the library from there. */
static int make_folders(const char *path)
{
    char part[PATH_MAX];

    for (const char *at = path; at != NULL;) {
        at = strchr(at + 1, '/');
        snprintf(part, sizeof part, "%.*s", at != NULL ? (int)(at - path) : PATH_MAX - 1, path);
        if (mkdir(part, 0755) == 0) {
            if (geteuid() == 0 && chmod(part, 0755) != 0)
                return -errno;
        } else if (errno != EEXIST && access(part, F_OK) != 0) {
            return -errno;
        }
    }
    return 0;
}

/* Opens the list: a descriptor of its folder; -ENOENT if there is none, or if this run keeps
 * none. */
static int open_list(bool make, char path[PATH_MAX])
{
    char folder[PATH_MAX];
    int fd, ret = 0;

    path[0] = '\0';
    if (!elf_registry_folder(folder))
        return -ENOENT;
    if (snprintf(path, PATH_MAX, "%s/" LIST, folder) >= PATH_MAX)
        return -ENAMETOOLONG;
    if (make)
        ret = make_folders(path);
    if (ret != 0)
        return ret;
    fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return fd >= 0 ? fd : -errno;
}

static void write_hex(char *to, const uint8_t *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++)
        snprintf(to + 2 * i, 3, "%02x", bytes[i]);
}

static bool read_hex(uint8_t *bytes, size_t count, const char *text)
{
    if (strlen(text) != 2 * count || strspn(text, "0123456789abcdef") != 2 * count)
        return false;
    for (size_t i = 0; i < count; i++) {
        const char digits[] = {text[2 * i], text[2 * i + 1], '\0'};

        bytes[i] = (uint8_t)strtoul(digits, NULL, 16);
    }
    return true;
}

static void name_entry(char name[NAME_SIZE], const char *path)
{
    uint8_t digest[ELF_CHECKSUM_SIZE];
    struct elf_checksum sum;

    elf_checksum_init(&sum);
    elf_checksum_update(&sum, path, strlen(path));
    elf_checksum_final(&sum, digest);
    write_hex(name, digest, (NAME_SIZE - 1) / 2);
}

void elf_path_encode(FILE *to, const char *path)
{
    for (; *path != '\0'; path++)
        fprintf(to,
                (unsigned char)*path <= ' ' || *path == '%' || *path == 0x7f ? "%%%02X" : "%c",
                (unsigned char)*path);
}

bool elf_path_decode(char *text)
{
    char *to = text;

    for (const char *from = text; *from != '\0'; from++) {
        char digits[3] = "";

        if (*from != '%') {
            *to++ = *from;
            continue;
        }
        memcpy(digits, from + 1, strnlen(from + 1, 2));
        if (strspn(digits, "0123456789ABCDEF") != 2 || strcmp(digits, "00") == 0)
            return false;
        *to++ = (char)strtoul(digits, NULL, 16);
        from += 2;
    }
    *to = '\0';
    return true;
}

static void put_path(FILE *to, const char *key, const char *path)
{
    fprintf(to, "%s=", key);
    elf_path_encode(to, path);
    fputc('\n', to);
}

static bool take_path(char to[PATH_MAX], char *text)
{
    return elf_path_decode(text) && text[0] == '/' &&
           snprintf(to, PATH_MAX, "%s", text) < PATH_MAX;
}

static int write_text(int folder, const char *temporary, const struct elf_listed *entry)
{
    char original[2 * ELF_CHECKSUM_SIZE + 1];
    int fd = openat(folder, temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644), ret;
    FILE *to = fd >= 0 ? fdopen(fd, "w") : NULL;

    if (to == NULL) {
        ret = -errno;
        if (fd >= 0)
            close(fd);
        return ret;
    }
    write_hex(original, entry->original, sizeof entry->original);
    put_path(to, "path", entry->path);
    fprintf(to, "file=%llu:%llu\noriginal=%s\n", (unsigned long long)entry->device,
            (unsigned long long)entry->inode, original);
    if (entry->root[0] != '\0')
        put_path(to, entry->venv ? "venv" : "tree", entry->root);
    ret = fflush(to) == 0 ? 0 : -errno;
    fclose(to);
    return ret;
}

int elf_registry_add(const struct elf_listed *entry, struct gs_err *err)
{
    char path[PATH_MAX], folder[PATH_MAX], name[NAME_SIZE], temporary[NAME_SIZE + 32];
    GS_CLOSE_FD int fd = -1;
    int ret = 0;

    if (!elf_registry_folder(folder))
        return 0;
    fd = open_list(true, path);
    if (fd < 0)
        return gs_err_errno(err, fd, "%s: cannot open", path);
    name_entry(name, entry->path);
    snprintf(temporary, sizeof temporary, "%s.new-%d", name, (int)getpid());
    ret = write_text(fd, temporary, entry);
    if (ret == -EEXIST && unlinkat(fd, temporary, 0) == 0) /* of a killed process */
        ret = write_text(fd, temporary, entry);
    if (ret == 0 && renameat(fd, temporary, fd, name) != 0)
        ret = -errno;
    if (ret == 0)
        return 0;
    unlinkat(fd, temporary, 0);
    return gs_err_errno(err, ret, "%s: cannot write an entry", path);
}

bool elf_registry_has(const char *path)
{
    char list[PATH_MAX], name[NAME_SIZE];
    GS_CLOSE_FD int fd = open_list(false, list);

    name_entry(name, path);
    return fd >= 0 && faccessat(fd, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

int elf_registry_forget(const char *path, struct gs_err *err)
{
    char list[PATH_MAX], name[NAME_SIZE];
    GS_CLOSE_FD int fd = open_list(false, list);

    if (fd == -ENOENT)
        return 0;
    name_entry(name, path);
    if (fd >= 0 && (unlinkat(fd, name, 0) == 0 || errno == ENOENT))
        return 0;
    return gs_err_errno(err, fd < 0 ? fd : -errno, "%s: cannot take out the entry of %s", list,
                        path);
}

static bool take_line(struct elf_listed *entry, char *line)
{
    char *value = strchr(line, '='), *end;

    if (value == NULL)
        return false;
    *value++ = '\0';
    if (strcmp(line, "path") == 0)
        return take_path(entry->path, value);
    if (strcmp(line, "original") == 0)
        return read_hex(entry->original, sizeof entry->original, value);
    if (strcmp(line, "file") == 0) {
        entry->device = (dev_t)strtoull(value, &end, 10);
        entry->inode = *end == ':' ? (ino_t)strtoull(end + 1, &end, 10) : 0;
        return *end == '\0';
    }
    entry->venv |= strcmp(line, "venv") == 0;
    if (strcmp(line, "venv") == 0 || strcmp(line, "tree") == 0)
        return take_path(entry->root, value);
    return true; /* written by a later version */
}

static bool read_entry(int folder, const char *name, struct elf_listed *entry)
{
    GS_CLOSE_FD int fd = openat(folder, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    char text[TEXT_SIZE], *rest = NULL;
    ssize_t n = fd >= 0 ? read(fd, text, sizeof text - 1) : -1;

    memset(entry, 0, sizeof *entry);
    if (n <= 0)
        return false;
    text[n] = '\0';
    for (char *line = strtok_r(text, "\n", &rest); line != NULL;
         line = strtok_r(NULL, "\n", &rest))
        if (!take_line(entry, line))
            return false;
    return entry->path[0] == '/' && strstr(entry->path, "/../") == NULL;
}

static int compare_entries(const void *a, const void *b)
{
    return strcmp(((const struct elf_listed *)a)->path, ((const struct elf_listed *)b)->path);
}

static int add_entry(struct elf_registry *registry, size_t *room, int folder, const char *name)
{
    struct elf_listed *list;

    if (strlen(name) != NAME_SIZE - 1 || strspn(name, "0123456789abcdef") != NAME_SIZE - 1)
        return 0;
    if (registry->count == MOST)
        return -E2BIG;
    list = elf_grow(registry->entries, registry->count, room, sizeof *list);
    if (list == NULL)
        return -ENOMEM;
    registry->entries = list;
    registry->count += read_entry(folder, name, &registry->entries[registry->count]);
    return 0;
}

int elf_registry_read(struct elf_registry *registry, struct gs_err *err)
{
    char path[PATH_MAX];
    size_t room = 0;
    int fd = open_list(false, path), ret = 0;
    const struct dirent *entry;
    DIR *list;

    *registry = (struct elf_registry){0};
    if (fd == -ENOENT)
        return 0;
    list = fd >= 0 ? fdopendir(fd) : NULL;
    if (list == NULL) {
        ret = fd < 0 ? fd : -errno;
        if (fd >= 0)
            close(fd);
        return gs_err_errno(err, ret, "%s: cannot read", path);
    }
    while (ret == 0 && (entry = readdir(list)) != NULL)
        ret = add_entry(registry, &room, dirfd(list), entry->d_name);
    closedir(list);
    if (registry->count > 1)
        qsort(registry->entries, registry->count, sizeof *registry->entries, compare_entries);
    return ret == 0 ? 0 : gs_err_errno(err, ret, "%s: cannot read", path);
}

void elf_registry_deinit(struct elf_registry *registry)
{
    free(registry->entries);
    *registry = (struct elf_registry){0};
}
