/* SPDX-License-Identifier: Apache-2.0
 *
 * door_command.c: gpushare-door's command line.
 */
#include "common/options.h"
#include "common/fd.h"
#include "common/same.h"

#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <glob.h>
#include <link.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/sendfile.h>
#include <sys/statvfs.h>

/* Makes a copy of the door for a folder. The door names the driver's library by an absolute path
 * of a fixed length (cmake/GpushareDoor.cmake), and the copy gets its own folder there. Files
 * are made under another name and renamed, except the empty file, which somebody may have
 * mounted on. */

/* A staged folder: the paths of its two files. */
struct gs_stage {
    char folder[PATH_MAX];
    char door[PATH_MAX], real[PATH_MAX];
};

#define DOOR_MOST (64u << 20) /* bytes; it is below 2 MiB */

static int write_all(int fd, const char *bytes, size_t size)
{
    while (size != 0) {
        const ssize_t done = write(fd, bytes, size);

        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            return done < 0 ? -errno : -EIO;
        bytes += done;
        size -= (size_t)done;
    }
    return 0;
}

static int read_door(const char *path, char **bytes, size_t *size, struct gs_err *err)
{
    GS_CLOSE_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct stat st;
    ssize_t got;

    if (fd < 0 || fstat(fd, &st) != 0)
        return gs_err_errno(err, -errno, "%.300s", path);
    if (st.st_size <= 0 || st.st_size > DOOR_MOST)
        return gs_err_set(err, -EINVAL, "%.300s is no door of gpushare", path);
    *size = (size_t)st.st_size;
    *bytes = malloc(*size);
    if (*bytes == NULL)
        return gs_err_set(err, -ENOMEM, "out of memory");
    got = gs_fd_read(fd, *bytes, *size);
    return got == st.st_size ? 0 : gs_err_errno(err, got < 0 ? (int)got : -EIO, "%.300s", path);
}

/* Writes the folder into the path by which the door loads the driver's library. */
static int name_folder(char *bytes, size_t size, const char *folder, struct gs_err *err)
{
    static const char tail[] = "/" GS_DOOR_REAL; /* with its 0 */
    const size_t room = GS_DOOR_PATH_LENGTH - (sizeof tail - 1), length = strlen(folder);
    char *found;

    if (length > room)
        return gs_err_set(err, -ENAMETOOLONG, "%.300s: its path may have %zu characters",
                          folder, room);
    found = memmem(bytes, size, tail, sizeof tail);
    if (found == NULL || (size_t)(found - bytes) < room || found[-(ptrdiff_t)room] != '/')
        return gs_err_set(err, -EINVAL, "the door does not name " GS_DOOR_REAL);
    memset(found - room, '/', room);
    for (size_t i = 0; i < length; i++) /* with no 0 behind it */
        (found - room)[i] = folder[i];
    return 0;
}

/* Opens a file with another name in the same folder for writing. */
static int open_beside(const char *path, char *beside, struct gs_err *err)
{
    int fd;

    if (snprintf(beside, PATH_MAX, "%s.XXXXXX", path) >= PATH_MAX)
        return gs_err_set(err, -ENAMETOOLONG, "%.300s: the path is too long", path);
    fd = mkostemp(beside, O_CLOEXEC);
    return fd >= 0 ? fd : gs_err_errno(err, -errno, "%.300s", beside);
}

static int finish_beside(int fd, const char *beside, const char *path, int code,
                         struct gs_err *err)
{
    if (code == 0 && (fchmod(fd, 0755) != 0 || rename(beside, path) != 0))
        code = -errno;
    if (code != 0)
        unlink(beside);
    return code == 0 ? 0 : gs_err_errno(err, code, "%.300s", path);
}

static int put_door(const struct gs_stage *stage, const char *door, struct gs_err *err)
{
    GS_FREE char *bytes = NULL;
    GS_CLOSE_FD int fd = -1;
    char beside[PATH_MAX];
    size_t size = 0;
    int code = read_door(door, &bytes, &size, err);

    code = code ?: name_folder(bytes, size, stage->folder, err);
    if (code != 0)
        return code;
    fd = open_beside(stage->door, beside, err);
    return fd < 0 ? fd
                  : finish_beside(fd, beside, stage->door, write_all(fd, bytes, size), err);
}

/* With a link: without it, programs that ask for libcuda.so would find the driver's elsewhere. */
static int put_driver(const struct gs_stage *stage, const char *driver, struct gs_err *err)
{
    GS_CLOSE_FD int from = open(driver, O_RDONLY | O_CLOEXEC);
    GS_CLOSE_FD int to = -1;
    char beside[PATH_MAX], link[PATH_MAX];
    ssize_t done;
    int code;

    if (from < 0)
        return gs_err_errno(err, -errno, "%.300s", driver);
    to = open_beside(stage->real, beside, err);
    if (to < 0)
        return to;
    while ((done = sendfile(to, from, NULL, DOOR_MOST)) > 0 || (done < 0 && errno == EINTR))
        ;
    code = finish_beside(to, beside, stage->real, done == 0 ? 0 : -errno, err);
    if (code != 0)
        return code;
    if (snprintf(link, sizeof link, "%s/libcuda.so", stage->folder) >= (int)sizeof link)
        return gs_err_set(err, -ENAMETOOLONG, "%.300s: the path is too long", stage->folder);
    if (symlink(GS_DOOR_NAME, link) != 0 && errno != EEXIST)
        return gs_err_errno(err, -errno, "%.300s", link);
    return 0;
}

/* The empty file, to be mounted on. */
static int put_empty(const struct gs_stage *stage, struct gs_err *err)
{
    GS_CLOSE_FD int fd = open(stage->real, O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0644);

    /* a driver that was mounted there is in use, which is as good */
    return fd < 0 && errno != ETXTBSY && errno != EACCES && errno != EROFS
               ? gs_err_errno(err, -errno, "%.300s", stage->real)
               : 0;
}

/* Makes the folder (not its parents) if it is not there, and puts a door in it that looks for
 * the driver's library there. driver: the library that is copied into it; NULL: an empty file
 * takes its place, to be mounted on. Processes that use an older door there keep it. 0 or
 * -errno. */
static int gs_stage_make(struct gs_stage *stage, const char *folder, const char *door,
                         const char *driver, struct gs_err *err)
{
    int code;

    if (mkdir(folder, 0755) != 0 && errno != EEXIST)
        return gs_err_errno(err, -errno, "%.300s", folder);
    if (realpath(folder, stage->folder) == NULL)
        return gs_err_errno(err, -errno, "%.300s", folder);
    if (snprintf(stage->door, PATH_MAX, "%s/" GS_DOOR_NAME, stage->folder) >= PATH_MAX ||
        snprintf(stage->real, PATH_MAX, "%s/" GS_DOOR_REAL, stage->folder) >= PATH_MAX)
        return gs_err_set(err, -ENAMETOOLONG, "%.300s: the path is too long", folder);
    code = put_door(stage, door, err);
    return code ?: (driver == NULL ? put_empty(stage, err) : put_driver(stage, driver, err));
}

/* Whether it is this user's own, and no other user can put anything into it. */
static bool is_own_folder(const char *folder)
{
    struct stat st;

    return folder != NULL && *folder == '/' && lstat(folder, &st) == 0 && S_ISDIR(st.st_mode) &&
           st.st_uid == geteuid() && (st.st_mode & 022) == 0;
}

/* Makes a folder for this user's stage: below /run for root, below the user's run-time folder or
 * /tmp for others. It must belong to this user alone. folder has PATH_MAX bytes. */
static int gs_stage_place(char *folder, struct gs_err *err)
{
    const char *runtime = getenv("XDG_RUNTIME_DIR");

    if (geteuid() == 0 && is_own_folder("/run"))
        snprintf(folder, PATH_MAX, "/run/gpushare-door");
    else if (is_own_folder(runtime))
        snprintf(folder, PATH_MAX, "%s/gpushare-door", runtime);
    else
        snprintf(folder, PATH_MAX, "/tmp/gpushare-door-%u", (unsigned)geteuid());
    if (mkdir(folder, 0755) != 0 && errno != EEXIST)
        return gs_err_errno(err, -errno, "%.300s", folder);
    if (!is_own_folder(folder))
        return gs_err_set(err, -EPERM,
                          "%.300s is not a folder that user %u alone can write: remove it",
                          folder, (unsigned)geteuid());
    return 0;
}

#define GS_DRIVERS_MOST 16

/* Files of this machine, symbolic links resolved. */
struct gs_drivers {
    char path[GS_DRIVERS_MOST][PATH_MAX]; /* the first is the one that the loader finds */
    size_t count;
    bool bound; /* the first is already a door */
};

/* Asks the loader for the driver's library, and looks into the folders in which packages
 * put other copies. Keeps nothing. */

#if defined(__x86_64__)
#define OUR_MACHINE EM_X86_64
#elif defined(__aarch64__)
#define OUR_MACHINE EM_AARCH64
#else
#error "neither x86-64 nor aarch64"
#endif

/* Adds a library for this machine, unless it is there. */
static void add_driver(struct gs_drivers *drivers, const char *path)
{
    GS_FREE char *real = realpath(path, NULL);
    GS_CLOSE_FD int fd = real != NULL ? open(real, O_RDONLY | O_CLOEXEC) : -1;
    Elf64_Ehdr header;

    if (fd < 0 || drivers->count == GS_DRIVERS_MOST || strlen(real) >= PATH_MAX ||
        read(fd, &header, sizeof header) != (ssize_t)sizeof header ||
        memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 ||
        header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_machine != OUR_MACHINE)
        return;
    for (size_t i = 0; i < drivers->count; i++)
        if (strcmp(drivers->path[i], real) == 0)
            return;
    snprintf(drivers->path[drivers->count++], PATH_MAX, "%s", real);
}

static void add_copies(struct gs_drivers *drivers)
{
    static const char *const patterns[] = {
        "/usr/lib/*-linux-gnu/" GS_DOOR_NAME,
        "/usr/lib64/" GS_DOOR_NAME,
        "/usr/lib/" GS_DOOR_NAME,
        "/usr/lib/wsl/lib/" GS_DOOR_NAME,
        "/usr/local/nvidia/lib*/" GS_DOOR_NAME,
        "/usr/local/cuda*/compat/" GS_DOOR_NAME,
    };

    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++) {
        glob_t found = {0};

        if (glob(patterns[i], GLOB_NOSORT, NULL, &found) == 0)
            for (size_t k = 0; k < found.gl_pathc; k++)
                add_driver(drivers, found.gl_pathv[k]);
        globfree(&found);
    }
}

/* Finds libcuda.so.1 as the loader does (LD_LIBRARY_PATH, the loader's cache), then copies in
 * the usual places: CUDA's compat folders, other library folders. Libraries of another
 * architecture (32 bits) are left out. 0; -ENOENT: the loader finds none. */
static int gs_find_drivers(struct gs_drivers *drivers, struct gs_err *err)
{
    void *handle = dlopen(GS_DOOR_NAME, RTLD_LAZY | RTLD_LOCAL);
    struct link_map *object = NULL;

    drivers->count = 0;
    drivers->bound = false;
    if (handle == NULL)
        return gs_err_set(err, -ENOENT, "the driver is not installed here: %.400s", dlerror());
    if (dlinfo(handle, RTLD_DI_LINKMAP, &object) == 0 && object != NULL)
        add_driver(drivers, object->l_name);
    drivers->bound = dlsym(handle, "gpushare_door_driver") != NULL;
    if (drivers->count == 0)
        return gs_err_set(err, -ENOENT, "the file of " GS_DOOR_NAME " cannot be read");
    add_copies(drivers);
    return 0;
}

/* The file of the door that belongs to this program. path has PATH_MAX bytes. */
static int gs_find_door(char *path, struct gs_err *err)
{
    static const char *const tails[] = {"../runtime/door/" GS_DOOR_NAME,
                                        GS_LIBDIR_FROM_BINDIR "/gpushare/door/" GS_DOOR_NAME};
    char folder[PATH_MAX], joined[PATH_MAX];

    if (!gs_own_path(folder, 1))
        return gs_err_errno(err, -ENOENT, "/proc/self/exe");
    for (size_t i = 0; i < sizeof tails / sizeof *tails; i++) {
        if (snprintf(joined, sizeof joined, "%s/%s", folder, tails[i]) < (int)sizeof joined &&
            access(joined, R_OK) == 0 && realpath(joined, path) != NULL)
            return 0;
    }
    return gs_err_set(err, -ENOENT,
                      "no door in %.300s/" GS_LIBDIR_FROM_BINDIR
                      "/gpushare/door; install gpushare completely",
                      folder);
}

/* Bind mounts in a private mount namespace. Nothing on the disk is changed, and the mounts
 * end with the last process of the namespace. */

static int write_file(const char *path, const char *text)
{
    GS_CLOSE_FD int fd = open(path, O_WRONLY | O_CLOEXEC);

    return fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text) ? 0 : -errno;
}

/* Makes a user namespace in which this user is the same as outside, and no other user is known. */
static int unshare_as_user(void)
{
    const unsigned uid = geteuid(), gid = getegid();
    char map[64];
    int code;

    if (unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0)
        return -errno;
    code = write_file("/proc/self/setgroups", "deny");
    if (code != 0 && code != -ENOENT)
        return code;
    snprintf(map, sizeof map, "%u %u 1", gid, gid);
    code = write_file("/proc/self/gid_map", map);
    snprintf(map, sizeof map, "%u %u 1", uid, uid);
    return code == 0 ? write_file("/proc/self/uid_map", map) : code;
}

/* Gives this process a mount namespace of its own, in which its mounts stay. If it may not, it
 * first gets a user namespace that has only this user and group. 0 or -errno. */
static int gs_bind_unshare(struct gs_err *err)
{
    int code = unshare(CLONE_NEWNS) == 0 ? 0 : -errno;

    if (code == -EPERM)
        code = unshare_as_user();
    if (code != 0)
        return gs_err_errno(err, code,
                            "no mount namespace of its own (user namespaces may be disabled "
                            "here; --stage and LD_LIBRARY_PATH need none)");
    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0)
        return gs_err_errno(err, -errno, "making mounts private%s",
                            errno == EINVAL ? ": the root folder of this chroot is no mount "
                                              "point (--stage and LD_LIBRARY_PATH need none)"
                                            : "");
    return 0;
}

/* -EPERM if processes elsewhere would see mounts that are made here. */
static int gs_bind_check(struct gs_err *err)
{
    GS_CLOSE_FILE FILE *file = fopen("/proc/self/mountinfo", "re");
    char line[4096];
    bool shared = false;

    if (file == NULL)
        return gs_err_errno(err, -errno, "/proc/self/mountinfo");
    while (fgets(line, sizeof line, file) != NULL)
        shared |= strstr(line, " shared:") != NULL;
    return shared ? gs_err_set(err, -EPERM,
                               "processes elsewhere share mounts with this one, and would get "
                               "the door as well: begin with `unshare -m`")
                  : 0;
}

static int protect_file(const char *from, const char *to, struct gs_err *err)
{
    struct statvfs st;
    unsigned long flags = MS_BIND | MS_REMOUNT | MS_RDONLY;

    /* a user namespace may not drop these */
    if (statvfs(to, &st) == 0)
        flags |= ((st.f_flag & ST_NOSUID) != 0 ? MS_NOSUID : 0) |
                 ((st.f_flag & ST_NODEV) != 0 ? MS_NODEV : 0) |
                 ((st.f_flag & ST_NOATIME) != 0 ? MS_NOATIME : 0) |
                 ((st.f_flag & ST_NODIRATIME) != 0 ? MS_NODIRATIME : 0) |
                 ((st.f_flag & ST_RELATIME) != 0 ? MS_RELATIME : 0);
    if (mount(NULL, to, NULL, flags, NULL) != 0 &&
        !(errno == EPERM && mount(NULL, to, NULL, flags | MS_NOEXEC, NULL) == 0))
        return gs_err_errno(err, -errno, "making %.300s read-only", to);
    /* true for a folder on a file system without programs (noexec), from which no library can be
     * loaded */
    return statvfs(to, &st) == 0 && (st.f_flag & ST_NOEXEC) != 0
               ? gs_err_set(err, -EPERM, "%.300s: its file system allows no programs (noexec)",
                            from)
               : 0;
}

static int bind_file(const char *from, const char *to, struct gs_err *err)
{
    int code;

    if (mount(from, to, NULL, MS_BIND, NULL) != 0)
        return gs_err_errno(err, -errno, "mounting %.200s on %.200s", from, to);
    code = protect_file(from, to, err);
    if (code != 0)
        umount2(to, MNT_DETACH);
    return code;
}

/* In this mount namespace, mounts the first driver at the stage's place for it, and the stage's
 * door over each driver. 0 or -errno. */
static int gs_bind_mount(const struct gs_stage *stage, const struct gs_drivers *drivers,
                         struct gs_err *err)
{
    int code = bind_file(drivers->path[0], stage->real, err);
    size_t done = 0;

    if (code != 0)
        return code;
    while (done < drivers->count && code == 0) {
        code = bind_file(stage->door, drivers->path[done], err);
        done += code == 0;
    }
    if (code == 0)
        return 0;
    while (done > 0) /* with some of the mounts only, the namespace would have no driver */
        umount2(drivers->path[--done], MNT_DETACH);
    umount2(stage->real, MNT_DETACH);
    return code;
}

enum exit_code { EXIT_DONE = 0, EXIT_FAILED = 1, EXIT_WRONG_USE = 2, EXIT_NOT_FOUND = 127 };

struct request {
    bool bind, find, help, version;
    const char *folder; /* of --folder */
    const char *stage;  /* of --stage */
    char **program;     /* ends with NULL */
};

#define FLAG(name, letter, help)                                                               \
    {                                                                                          \
#name, NULL, GS_OPTION_FLAG, NULL, 0, 0, help, NULL, letter,                           \
            offsetof(struct request, name)                                                     \
    }
#define TEXT(name, letter, help)                                                               \
    {                                                                                          \
#name, "FOLDER", GS_OPTION_TEXT, NULL, 0, 0, help, NULL, letter,                       \
            offsetof(struct request, name)                                                     \
    }

static const struct gs_option own_options[] = {
    FLAG(bind, 0, "mount the door in this mount namespace (made by `unshare -m`)"),
    TEXT(stage, 0,
         "make a folder with the door and a copy of the driver's library, for\n"
         "                               LD_LIBRARY_PATH or an image"),
    FLAG(find, 0, "print the driver's library, then other copies of it"),
    TEXT(folder, 'd',
         "folder in which the mounted door is kept (default: a folder of this\n"
         "                               user below /run or /tmp)"),
    FLAG(help, 'h', "show this help"),
    FLAG(version, 'V', "show the release"),
    {0},
};

static void print_usage(FILE *out)
{
    fputs(
        "usage: gpushare-door [-d FOLDER] -- PROGRAM [ARGUMENT...]\n"
        "       gpushare-door [-d FOLDER] --bind\n"
        "       gpushare-door --stage FOLDER | --find\n"
        "Put gpushare in the driver's place (libcuda.so.1), for programs and images that "
        "cannot be changed.\n\n"
        "  -- PROGRAM                   run one program in a mount namespace of its own, with\n"
        "                               the door mounted over the driver's library\n",
        out);
    gs_options_help(own_options, out);
    fputs(
        "\nexit codes: 0 done, 1 failed, 2 usage, 127 PROGRAM was not found; with PROGRAM its "
        "own\n",
        out);
}

static int report_failure(const struct gs_err *err)
{
    fprintf(stderr, "gpushare-door: %s\n", err->text);
    return EXIT_FAILED;
}

static int mount_door(const struct request *request, const struct gs_drivers *drivers,
                      struct gs_err *err)
{
    char door[PATH_MAX], folder[PATH_MAX];
    struct gs_stage stage;
    int code = gs_find_door(door, err);

    if (code == 0 && request->folder == NULL)
        code = gs_stage_place(folder, err);
    code = code
               ?: gs_stage_make(&stage, request->folder != NULL ? request->folder : folder,
                                door, NULL, err);
    if (code == 0 && *request->program != NULL)
        code = gs_bind_unshare(err);
    if (code == 0 && request->bind)
        code = gs_bind_check(err);
    return code ?: gs_bind_mount(&stage, drivers, err);
}

static int stage_copy(const char *folder, const struct gs_drivers *drivers, struct gs_err *err)
{
    char door[PATH_MAX];
    struct gs_stage stage;
    int code = gs_find_door(door, err);

    if (code == 0 && drivers->bound)
        code = gs_err_set(err, -EEXIST,
                          "the driver's library here is a door already: nothing to copy");
    return code ?: gs_stage_make(&stage, folder, door, drivers->path[0], err);
}

static int carry_out(const struct request *request)
{
    struct gs_drivers drivers;
    struct gs_err err = {0};
    int code = gs_find_drivers(&drivers, &err);

    if (code == 0 && request->find) {
        for (size_t i = 0; i < drivers.count; i++)
            printf("%s%s\n", drivers.path[i], i == 0 && drivers.bound ? " (a door)" : "");
        return fflush(stdout) == 0 ? EXIT_DONE : EXIT_FAILED;
    }
    if (code == 0 && request->stage != NULL)
        code = stage_copy(request->stage, &drivers, &err);
    else if (code == 0 && !drivers.bound) /* else everything is done */
        code = mount_door(request, &drivers, &err);
    if (code != 0)
        return report_failure(&err);
    if (*request->program == NULL)
        return EXIT_DONE;
    execvp(request->program[0], request->program);
    fprintf(stderr, "gpushare-door: %s: %s\n", request->program[0], strerror(errno));
    return errno == ENOENT ? EXIT_NOT_FOUND : EXIT_FAILED;
}

/* Fills in the request, or an exit code in *code. */
static bool parse_arguments(int argc, char **argv, struct request *request, int *code)
{
    struct gs_err err = {0};
    int index = 1, actions;

    *code = EXIT_DONE;
    if (gs_options_parse(own_options, request, true, argc, argv, &index, &err) != 0) {
        report_failure(&err);
    } else if (request->help) {
        print_usage(stdout);
        return false;
    } else if (request->version) {
        puts("gpushare-door " GS_VERSION);
        return false;
    } else {
        request->program = argv + index;
        actions = request->bind + request->find + (request->stage != NULL) + (index < argc);
        /* --folder: of the mounts, which only two of them make */
        if (actions == 1 && (request->folder == NULL || request->bind || index < argc))
            return true;
    }
    print_usage(stderr);
    *code = EXIT_WRONG_USE;
    return false;
}

int main(int argc, char **argv)
{
    struct request request = {0};
    int code;

    if (gs_fd_open_standard(O_RDONLY) != 0)
        return EXIT_FAILED;
    if (gs_complete_asked(argc, argv))
        return gs_complete_line(own_options, true, "PROGRAM", argc, argv);
    if (!parse_arguments(argc, argv, &request, &code))
        return fflush(stdout) == 0 ? code : EXIT_FAILED;
    return carry_out(&request);
}
