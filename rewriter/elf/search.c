/* SPDX-License-Identifier: Apache-2.0
 *
 * search.c: the loader's search for a library (glibc's elf/dl-load.c and elf/dl-cache.c).
 *
 * Where the processor decides ($PLATFORM, glibc-hwcaps), each possible folder is tried: variants
 * of a library for different processors use CUDA in the same way. No state, any thread.
 */
#include "rewriter/elf/search.h"
#include "rewriter/elf/grow.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define CACHE       "/etc/ld.so.cache"
#define CACHE_MAGIC "glibc-ld.so.cache1.1"

struct search {
    struct elf_reach *reach;
    unsigned machine;
    const char *name;
    char *path; /* PATH_MAX bytes: the result */
};

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

static const struct habits *find_habits(unsigned machine)
{
    for (size_t i = 0; i < sizeof habits / sizeof habits[0]; i++)
        if (habits[i].machine == machine)
            return &habits[i];
    return NULL;
}

static const struct elf_object *try_path(const struct search *search, const char *folder,
                                         const char *variant)
{
    const struct elf_object *object;

    if (snprintf(search->path, PATH_MAX, "%s%s%s%s", folder, variant, *folder ? "/" : "",
                 search->name) >= PATH_MAX)
        return NULL;
    object = elf_reach_object(search->reach, search->path);
    return object != NULL && object->valid && object->machine == search->machine ? object
                                                                                 : NULL;
}

static const struct elf_object *try_folder(const struct search *search, const char *folder)
{
    const struct habits *machine = find_habits(search->machine);
    const struct elf_object *object = NULL;

    for (size_t i = 0; machine != NULL && object == NULL && machine->variants[i] != NULL; i++)
        object = try_path(search, folder, machine->variants[i]);
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

static void folder_of(const char *path, char folder[PATH_MAX])
{
    const char *slash = strrchr(path, '/');

    snprintf(folder, PATH_MAX, "%.*s",
             slash == NULL   ? 1
             : slash == path ? 1
                             : (int)(slash - path),
             slash == NULL ? "." : path);
}

/* Tries a path, or a folder for the name, with every value of its tokens. */
static const struct elf_object *try_expanded(const struct search *search, const char *text,
                                             const char *origin_of, bool is_folder)
{
    const struct habits *machine = find_habits(search->machine);
    char origin[PATH_MAX], path[PATH_MAX];
    const struct elf_object *object = NULL;

    folder_of(origin_of, origin);
    for (size_t i = 0; machine != NULL && object == NULL && machine->libs[i] != NULL; i++)
        for (size_t j = 0; object == NULL && machine->platforms[j] != NULL; j++) {
            const char *const values[] = {origin, machine->libs[i], machine->platforms[j]};

            if (!expand_tokens(text, values, path))
                continue;
            if (is_folder)
                object = try_folder(search, *path != '\0' ? path : ".");
            else
                object = try_path(
                    &(struct search){search->reach, search->machine, path, search->path}, "",
                    "");
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
    const struct habits *machine = find_habits(search->machine);
    const uint8_t *head = memmem(bytes, size, CACHE_MAGIC, sizeof CACHE_MAGIC - 1);
    const struct elf_object *object;
    uint32_t count, entry[3];

    if (head == NULL || machine == NULL || (size -= (size_t)(head - bytes)) < 48)
        return NULL;
    memcpy(&count, head + sizeof CACHE_MAGIC - 1, sizeof count);
    for (size_t i = 0; i < count && 48 + (i + 1) * 24 <= size; i++) {
        memcpy(entry, head + 48 + i * 24, sizeof entry);
        if (entry[0] != machine->cache_kind || entry[1] >= size || entry[2] >= size ||
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
    int fd = open(CACHE, O_RDONLY | O_CLOEXEC);
    const struct elf_object *object = NULL;
    void *bytes = MAP_FAILED;
    struct stat st;

    if (fd >= 0 && fstat(fd, &st) == 0 && st.st_size > 0)
        bytes = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (bytes != MAP_FAILED) {
        object = look_in_cache(search, bytes, (size_t)st.st_size);
        munmap(bytes,
               (size_t)st.st_size); /* ldconfig replaces the file, it never shortens it */
    }
    if (fd >= 0)
        close(fd);
    return object;
}

static const struct elf_object *try_defaults(const struct search *search)
{
    const struct habits *machine = find_habits(search->machine);
    const struct elf_object *object = NULL;

    for (size_t i = 0; machine != NULL && object == NULL && machine->defaults[i] != NULL; i++)
        object = try_folder(search, machine->defaults[i]);
    return object;
}

const struct elf_object *elf_search(struct elf_reach *reach, const struct elf_asker *asker,
                                    const char *name, char path[PATH_MAX])
{
    const struct search search = {reach, asker->object->machine, name, path};
    const struct elf_object *object = NULL;

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
    return object ?: try_defaults(&search);
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

const struct elf_asker *elf_closure_cuda(const struct elf_closure *closure, size_t from)
{
    for (size_t i = from; i < closure->count; i++)
        if (closure->list[i]->as.object->reaches)
            return &closure->list[i]->as;
    return NULL;
}

bool elf_closure_can_dlopen(const struct elf_closure *closure)
{
    for (size_t i = 0; i < closure->count; i++)
        if (closure->list[i]->as.object->can_dlopen)
            return true;
    return false;
}
