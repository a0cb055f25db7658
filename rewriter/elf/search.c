/* SPDX-License-Identifier: Apache-2.0
 *
 * search.c: the loader's search for a library (glibc's elf/dl-load.c and elf/dl-cache.c).
 *
 * Where the processor decides ($PLATFORM, glibc-hwcaps), each possible folder is tried: variants
 * of a library for different processors use CUDA in the same way. No state, any thread.
 */
#include "rewriter/elf/search.h"
#include "common/fd.h"
#include "rewriter/elf/grow.h"

#include <dirent.h>
#include <elf.h>
#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#define CACHE       "/etc/ld.so.cache"
#define CACHE_MAGIC "glibc-ld.so.cache1.1"

/* How one machine's loader is built: its default folders, its $LIB, its $PLATFORM, and the kind
 * of its libraries in the cache. Each list ends with NULL. */
struct habits {
    unsigned machine;
    uint32_t cache_kind; /* FLAG_ELF_LIBC6 with FLAG_X8664_LIB64 or FLAG_AARCH64_LIB64 */
    const char *defaults[7], *libs[4], *platforms[4], *variants[5];
};

static const struct habits habits[] = {
    {EM_X86_64,
     0x0303,
     {"/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib64", "/usr/lib64", "/lib",
      "/usr/lib"},
     {"lib/x86_64-linux-gnu", "lib64", "lib"},
     {"x86_64", "haswell", "xeon_phi"},
     {"/glibc-hwcaps/x86-64-v4", "/glibc-hwcaps/x86-64-v3", "/glibc-hwcaps/x86-64-v2", ""}},
    {EM_AARCH64,
     0x0a03,
     {"/lib/aarch64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/lib64", "/usr/lib64", "/lib",
      "/usr/lib"},
     {"lib/aarch64-linux-gnu", "lib64", "lib"},
     {"aarch64"},
     {""}},
};

struct search {
    struct elf_reach *reach;
    const struct habits *machine;
    const char *name;
    char *path; /* PATH_MAX bytes: the result */
};

static const struct elf_object *try_path(const struct search *search, const char *folder,
                                         const char *variant)
{
    const struct elf_object *object;

    if (snprintf(search->path, PATH_MAX, "%s%s%s%s", folder, variant, *folder ? "/" : "",
                 search->name) >= PATH_MAX)
        return NULL;
    object = elf_reach_object(search->reach, search->path);
    return object != NULL && object->valid && object->machine == search->machine->machine
               ? object
               : NULL;
}

static const struct elf_object *try_folder(const struct search *search, const char *folder)
{
    const struct elf_object *object = NULL;

    for (size_t i = 0; object == NULL && search->machine->variants[i] != NULL; i++)
        object = try_path(search, folder, search->machine->variants[i]);
    return object;
}

/* The length of the token NAME at text, as $NAME or ${NAME}; 0: it is not there. */
static size_t token_length(const char *text, const char *name)
{
    size_t length = strlen(name);

    if (text[0] != '$')
        return 0;
    if (text[1] == '{')
        return strncmp(text + 2, name, length) == 0 && text[2 + length] == '}' ? length + 3 : 0;
    return strncmp(text + 1, name, length) == 0 ? length + 1 : 0;
}

/* Replaces the tokens of a path. Values: of $ORIGIN, $LIB, $PLATFORM. False if it is too
 * long. */
static bool expand_tokens(const char *text, const char *const values[3], char out[PATH_MAX])
{
    static const char *const names[] = {"ORIGIN", "LIB", "PLATFORM"};
    size_t n = 0;

    while (*text != '\0') {
        const char *value = NULL;
        size_t length = 0;

        for (size_t i = 0; i < 3 && length == 0; i++) {
            length = token_length(text, names[i]);
            value = values[i];
        }
        if (length == 0) {
            value = text;
            length = 1;
        }
        n += (size_t)snprintf(out + n, PATH_MAX - n, "%.*s",
                              value == text ? 1 : (int)strlen(value), value);
        if (n >= PATH_MAX)
            return false;
        text += length;
    }
    out[n] = '\0';
    return true;
}

/* Tries a path, or a folder for the name, with every value of its tokens. */
static const struct elf_object *try_expanded(const struct search *search, const char *text,
                                             const char *origin_of, bool is_folder)
{
    const struct habits *machine = search->machine;
    const char *slash = strrchr(origin_of, '/');
    char origin[PATH_MAX] = ".", path[PATH_MAX];
    const struct elf_object *object = NULL;

    if (slash != NULL)
        snprintf(origin, sizeof origin, "%.*s",
                 slash > origin_of ? (int)(slash - origin_of) : 1, origin_of);
    for (size_t i = 0; object == NULL && machine->libs[i] != NULL; i++)
        for (size_t j = 0; object == NULL && machine->platforms[j] != NULL; j++) {
            const char *const values[] = {origin, machine->libs[i], machine->platforms[j]};

            if (!expand_tokens(text, values, path))
                continue;
            if (is_folder)
                object = try_folder(search, *path != '\0' ? path : ".");
            else
                object = try_path(&(struct search){search->reach, machine, path, search->path},
                                  "", "");
            if (strstr(text, "PLATFORM") == NULL)
                break;
        }
    return object;
}

/* Tries the folders of a list, which are between colons (in LD_LIBRARY_PATH also
 * semicolons). */
static const struct elf_object *try_list(const struct search *search, const char *list,
                                         const char *between, const char *origin_of)
{
    const struct elf_object *object = NULL;

    while (list != NULL && object == NULL) {
        size_t length = strcspn(list, between);
        char folder[PATH_MAX];

        if (length < sizeof folder) {
            memcpy(folder, list, length);
            folder[length] = '\0';
            object = try_expanded(search, folder, origin_of, true);
        }
        list = list[length] != '\0' ? list + length + 1 : NULL;
    }
    return object;
}

/* The cache, format 1.1: a head of 48 bytes, then entries of 24 bytes that are kind, offset of
 * the name, offset of the path, and 12 bytes for the processor; offsets count from the head. */
static const struct elf_object *look_in_cache(const struct search *search, const uint8_t *bytes,
                                              size_t size)
{
    const uint8_t *head = memmem(bytes, size, CACHE_MAGIC, sizeof CACHE_MAGIC - 1);
    const struct elf_object *object;
    uint32_t count, entry[3];

    if (head == NULL || (size -= (size_t)(head - bytes)) < 48)
        return NULL;
    memcpy(&count, head + sizeof CACHE_MAGIC - 1, sizeof count);
    for (size_t i = 0; i < count && 48 + (i + 1) * 24 <= size; i++) {
        memcpy(entry, head + 48 + i * 24, sizeof entry);
        if (entry[0] != search->machine->cache_kind || entry[1] >= size || entry[2] >= size ||
            strncmp((const char *)head + entry[1], search->name, size - entry[1]) != 0 ||
            memchr(head + entry[2], '\0', size - entry[2]) == NULL)
            continue;
        object = try_path(&(struct search){search->reach, search->machine,
                                           (const char *)head + entry[2], search->path},
                          "", "");
        if (object != NULL)
            return object;
    }
    return NULL;
}

static const struct elf_object *try_cache(const struct search *search)
{
    GS_CLOSE_FD int fd = open(CACHE, O_RDONLY | O_CLOEXEC);
    const struct elf_object *object = NULL;
    void *bytes = MAP_FAILED;
    struct stat st;

    if (fd >= 0 && fstat(fd, &st) == 0 && st.st_size > 0)
        bytes = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (bytes != MAP_FAILED) {
        object = look_in_cache(search, bytes, (size_t)st.st_size);
        munmap(bytes, (size_t)st.st_size); /* ldconfig replaces the file, never shortens it */
    }
    return object;
}

/* Finds the library of that name (DT_NEEDED, or dlopen's) for the asker: by RPATH of it and of
 * those that asked for it, LD_LIBRARY_PATH of this run, its RUNPATH, /etc/ld.so.cache, and the
 * default folders. The object, with its path; NULL: the loader would not find it. */
static const struct elf_object *elf_search(struct elf_reach *reach,
                                           const struct elf_asker *asker, const char *name,
                                           char path[PATH_MAX])
{
    struct search search = {reach, NULL, name, path};
    const struct elf_object *object = NULL;

    for (size_t i = 0; i < sizeof habits / sizeof habits[0]; i++)
        if (habits[i].machine == asker->object->machine)
            search.machine = &habits[i];
    if (search.machine == NULL)
        return NULL;
    if (strchr(name, '/') != NULL)
        return try_expanded(&search, name, asker->path, false);
    if (asker->object->runpath == NULL)
        for (const struct elf_asker *a = asker; a != NULL && object == NULL; a = a->asker)
            object = try_list(&search, a->object->rpath, ":", a->path);
    object = object ?: try_list(&search, getenv("LD_LIBRARY_PATH"), ":;", asker->path);
    object = object ?: try_list(&search, asker->object->runpath, ":", asker->path);
    if (asker->object->no_defaults)
        return object;
    object = object ?: try_cache(&search);
    for (size_t i = 0; object == NULL && search.machine->defaults[i] != NULL; i++)
        object = try_folder(&search, search.machine->defaults[i]);
    return object;
}

/* Breadth first, as the loader does it: a library that is there by its name or SONAME is
 * not searched for again. */

static void free_member(struct elf_closure_member *member)
{
    if (member == NULL)
        return;
    free(member->path);
    free(member->name);
    free(member);
}

void elf_closure_deinit(struct elf_closure *closure)
{
    for (size_t i = 0; i < closure->count; i++)
        free_member(closure->list[i]);
    free(closure->list);
    *closure = (struct elf_closure){0};
}

static int add_member(struct elf_closure *closure, const struct elf_asker *as, const char *name)
{
    struct elf_closure_member **list =
        elf_grow(closure->list, closure->count, &closure->room, sizeof(void *));
    struct elf_closure_member *member = list != NULL ? calloc(1, sizeof *member) : NULL;

    if (list != NULL)
        closure->list = list;
    if (member == NULL)
        return -ENOMEM;
    member->as = *as;
    member->as.path = member->path = strdup(as->path);
    member->name = strdup(name);
    if (member->path == NULL || member->name == NULL) {
        free_member(member);
        return -ENOMEM;
    }
    closure->list[closure->count++] = member;
    return 0;
}

bool elf_closure_has(const struct elf_closure *closure, const char *name)
{
    for (size_t i = 1; i < closure->count; i++) {
        const char *soname = closure->list[i]->as.object->soname;

        if (strcmp(closure->list[i]->name, name) == 0 ||
            (soname != NULL && strcmp(soname, name) == 0))
            return true;
    }
    return false;
}

static bool has_object(const struct elf_closure *closure, const struct elf_object *object)
{
    for (size_t i = 0; i < closure->count; i++)
        if (closure->list[i]->as.object == object)
            return true;
    return false;
}

int elf_closure_make(struct elf_closure *closure, struct elf_reach *reach, const char *path)
{
    struct elf_asker as = {.object = elf_reach_object(reach, path), .path = path};
    char found[PATH_MAX];
    int ret = 0;

    *closure = (struct elf_closure){0};
    if (as.object == NULL || !as.object->valid)
        return -ENOENT;
    ret = add_member(closure, &as, "");
    for (size_t i = 0; ret == 0 && i < closure->count; i++) {
        const struct elf_asker *asker = &closure->list[i]->as;

        for (size_t j = 0; ret == 0 && j < asker->object->needed_count; j++) {
            const char *name = asker->object->needed[j];

            if (elf_closure_has(closure, name))
                continue;
            as = (struct elf_asker){elf_search(reach, asker, name, found), found, asker};
            if (as.object != NULL && !has_object(closure, as.object))
                ret = add_member(closure, &as, name);
        }
    }
    return ret;
}

/* The first member from number `from` on that uses CUDA by itself; NULL: none. */
static const struct elf_asker *elf_closure_cuda(const struct elf_closure *closure, size_t from)
{
    for (size_t i = from; i < closure->count; i++)
        if (closure->list[i]->as.object->reaches)
            return &closure->list[i]->as;
    return NULL;
}

#define DEPTH 2 /* folders below: lib/ollama/cuda_v12 is two below lib; plug-ins of plug-ins */
#define MOST  4000 /* entries that are looked at; a program's own folder has fewer */

struct hunt {
    struct elf_reach *reach;
    struct elf_way *way;
    size_t left; /* entries */
};

/* Whether the file is a library that uses CUDA by itself or by one of its libraries. */
static bool take_plugin(struct hunt *hunt, const char *path)
{
    struct elf_closure closure;
    const struct elf_asker *found = NULL;

    if (elf_closure_make(&closure, hunt->reach, path) == 0 &&
        !closure.list[0]->as.object->program)
        found = elf_closure_cuda(&closure, 0);
    if (found != NULL) {
        hunt->way->kind = ELF_WAY_PLUGIN;
        snprintf(hunt->way->path, sizeof hunt->way->path, "%s", path);
        if (found->asker == NULL)
            snprintf(hunt->way->why, sizeof hunt->way->why, "%s", found->object->why);
        else
            snprintf(hunt->way->why, sizeof hunt->way->why, "loads %.150s", found->path);
    }
    elf_closure_deinit(&closure);
    return found != NULL;
}

static bool is_folder(const struct dirent *entry, const char *path)
{
    struct stat st;

    if (entry->d_type != DT_UNKNOWN)
        return entry->d_type == DT_DIR;
    return lstat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

/* The name of a plug-in may have any end: .so, .node, .plugin. */
static void hunt_below(struct hunt *hunt, const char *folder, int depth)
{
    DIR *dir = opendir(folder);
    struct dirent *entry;
    char path[PATH_MAX];

    while (dir != NULL && hunt->way->kind == ELF_WAY_NONE && (entry = readdir(dir)) != NULL) {
        if (entry->d_name[0] == '.' || hunt->left == 0 ||
            snprintf(path, sizeof path, "%s/%s", folder, entry->d_name) >= (int)sizeof path)
            continue;
        hunt->left--;
        if (!is_folder(entry, path))
            take_plugin(hunt, path);
        else if (depth > 0)
            hunt_below(hunt, path, depth - 1);
    }
    if (dir != NULL)
        closedir(dir);
}

static bool is_system(const char *folder)
{
    static const char *const parts[] = {"bin", "sbin", "lib", "lib32", "lib64", "libexec"};
    const char *at = folder;

    if (strncmp(at, "/usr/", 5) == 0)
        at += 4;
    if (strncmp(at, "/local/", 7) == 0 && at != folder)
        at += 6;
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        size_t length = strlen(parts[i]);

        if (strncmp(at + 1, parts[i], length) == 0 &&
            (at[1 + length] == '/' || at[1 + length] == '\0'))
            return true;
    }
    return false;
}

/* Looks for the libraries whose names are in the data of the object, or of a library that comes
 * with it, as dlopen would find them; and for theirs. */
static void hunt_named(struct hunt *hunt, const struct elf_closure *closure, int depth)
{
    for (size_t i = 0; i < closure->count && hunt->way->kind == ELF_WAY_NONE; i++) {
        const struct elf_asker *as = &closure->list[i]->as;

        if (i > 0 && is_system(as->path))
            continue;
        for (size_t j = 0; j < as->object->named_count; j++) {
            struct elf_closure plugin;
            char path[PATH_MAX];

            if (hunt->left == 0 || elf_closure_has(closure, as->object->named[j]))
                continue;
            hunt->left--;
            if (elf_search(hunt->reach, as, as->object->named[j], path) == NULL)
                continue;
            if (take_plugin(hunt, path))
                return;
            if (depth > 0 && !is_system(path) &&
                elf_closure_make(&plugin, hunt->reach, path) == 0) {
                hunt_named(hunt, &plugin, depth - 1);
                elf_closure_deinit(&plugin);
            }
        }
    }
}

/* Looks below each lib beside the bin of the program; of the system's only at what is named after
 * the program. */
static void hunt_beside(struct hunt *hunt, const char *path)
{
    static const char *const libs[] = {"lib", "lib64", "libexec", "lib/x86_64-linux-gnu",
                                       "lib/aarch64-linux-gnu"};
    const char *base = strrchr(path, '/') + 1;
    char folder[PATH_MAX], lib[PATH_MAX + NAME_MAX + 64];
    const char *last;

    snprintf(folder, sizeof folder, "%.*s", base - 1 > path ? (int)(base - 1 - path) : 1, path);
    last = strrchr(folder, '/') + 1;
    if (!is_system(folder))
        hunt_below(hunt, folder, DEPTH);
    if (strcmp(last, "bin") != 0 && strcmp(last, "sbin") != 0 && strcmp(last, "libexec") != 0)
        return;
    for (size_t i = 0; i < sizeof libs / sizeof libs[0]; i++) {
        snprintf(lib, sizeof lib, "%.*s%s%s%s", (int)(last - folder), folder, libs[i],
                 is_system(folder) ? "/" : "", is_system(folder) ? base : "");
        hunt_below(hunt, lib, DEPTH);
    }
}

int elf_way_find(struct elf_way *way, struct elf_reach *reach, const char *path, bool plugins,
                 const char *plugin)
{
    struct hunt hunt = {.reach = reach, .way = way, .left = MOST};
    struct elf_closure closure;
    const struct elf_asker *found;
    int ret = elf_closure_make(&closure, reach, path);
    bool can_dlopen = false; /* a member can load plug-ins */

    for (size_t i = 0; i < closure.count; i++)
        can_dlopen |= closure.list[i]->as.object->can_dlopen;
    *way = (struct elf_way){0};
    found = ret == 0 ? elf_closure_cuda(&closure, 1) : NULL;
    if (found != NULL) {
        way->kind = ELF_WAY_LIBRARY;
        if (realpath(found->path, way->path) == NULL)
            snprintf(way->path, sizeof way->path, "%s", found->path);
        snprintf(way->why, sizeof way->why, "%s", found->object->why);
    } else if (ret == 0 && plugins && can_dlopen) {
        hunt_named(&hunt, &closure, DEPTH);
        if (way->kind == ELF_WAY_NONE)
            hunt_beside(&hunt, path);
        if (way->kind == ELF_WAY_NONE && plugin != NULL && !is_system(path))
            take_plugin(&hunt, plugin);
        way->in_vain = way->kind == ELF_WAY_NONE;
    }
    elf_closure_deinit(&closure);
    return ret == -ENOMEM ? ret : 0;
}
