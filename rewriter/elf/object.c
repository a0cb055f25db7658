/* SPDX-License-Identifier: Apache-2.0
 *
 * object.c: reads one file as it was before it was patched, and remembers it by device and inode.
 *
 * Owns the objects; a lock protects the table. Two threads may read the same file at once; the
 * second result is dropped.
 */
#include "rewriter/elf/object.h"
#include "common/fd.h"
#include "rewriter/elf/facts.h"
#include "rewriter/elf/note.h"
#include "rewriter/elf/reader.h"

#include <fcntl.h>
#include <pthread.h>
#include <search.h>
#include <string.h>
#include <sys/stat.h>

struct elf_reach {
    pthread_mutex_t lock;
    void *objects; /* struct elf_object, tsearch */
};

struct elf_reach *elf_reach_new(void)
{
    struct elf_reach *reach = calloc(1, sizeof *reach);

    if (reach != NULL)
        pthread_mutex_init(&reach->lock, NULL);
    return reach;
}

static void free_object(void *pointer)
{
    struct elf_object *object = pointer;

    for (size_t i = 0; i < object->needed_count; i++)
        free(object->needed[i]);
    for (size_t i = 0; i < object->named_count; i++)
        free(object->named[i]);
    free(object->named);
    free(object->needed);
    free(object->soname);
    free(object->rpath);
    free(object->runpath);
    free(object);
}

void elf_reach_free(struct elf_reach *reach)
{
    if (reach == NULL)
        return;
    tdestroy(reach->objects, free_object);
    pthread_mutex_destroy(&reach->lock);
    free(reach);
}

static int compare_objects(const void *a, const void *b)
{
    const struct elf_object *x = a, *y = b;

    if (x->device != y->device)
        return x->device < y->device ? -1 : 1;
    return x->inode < y->inode ? -1 : x->inode > y->inode;
}

static char *copy_name(const struct elf_image *image, int64_t tag)
{
    const Elf64_Dyn *entry = elf_image_dynamic(image, tag);

    return entry != NULL ? strdup(elf_image_string(image, entry->d_un.d_val)) : NULL;
}

static void read_image(struct elf_object *object, const struct elf_image *image)
{
    struct elf_facts facts;

    if (elf_facts_read(&facts, image, false, NULL) != 0)
        return;
    object->program = elf_image_is_program(image);
    object->machine = image->header.e_machine;
    object->no_defaults = (image->dynamic.flags_1 & DF_1_NODEFLIB) != 0;
    object->soname = copy_name(image, DT_SONAME);
    object->runpath = copy_name(image, DT_RUNPATH);
    object->rpath = object->runpath == NULL ? copy_name(image, DT_RPATH) : NULL;
    object->can_dlopen = facts.imports_dlopen || facts.imports_dlmopen;
    /* the driver and gpushare's own libraries are where the calls end */
    object->reaches =
        elf_facts_cuda(&facts) &&
        (object->soname == NULL || (strncmp(object->soname, "libcuda.so", 10) != 0 &&
                                    strncmp(object->soname, "libgpushare.so", 14) != 0));
    object->mute = object->reaches && facts.import_count == 0 && facts.needed == NULL &&
                   facts.runtime_import == NULL && (facts.names_libcuda || facts.names_cudart);
    elf_facts_why(&facts, object->why, sizeof object->why);
    object->needed = calloc(image->dynamic.count + 1, sizeof *object->needed);
    for (size_t i = 0; object->needed != NULL && i < image->dynamic.count; i++) {
        const Elf64_Dyn *entry = &image->dynamic.entries[i];
        char *name;

        if (entry->d_tag != DT_NEEDED && entry->d_tag != DT_FILTER &&
            entry->d_tag != DT_AUXILIARY)
            continue;
        name = strdup(elf_image_string(image, entry->d_un.d_val));
        if (name != NULL)
            object->needed[object->needed_count++] = name;
    }
    object->named = facts.libraries;
    object->named_count = facts.library_count;
    facts.libraries = NULL;
    facts.library_count = 0;
    object->valid = true;
    elf_facts_deinit(&facts);
}

static void read_file(struct elf_object *object, const char *path, int fd, off_t size)
{
    struct elf_source source = {.name = path, .fd = fd, .size = (uint64_t)size};
    struct elf_image image;
    struct elf_note note;

    object->patched = elf_note_find(&note, &source) == ELF_NOTE_FOUND;
    if (object->patched && note.lost.code == 0 && !note.relaid)
        source = elf_note_undone(&note, &source);
    if (elf_image_read(&image, &source, NULL) == 0) {
        read_image(object, &image);
        elf_image_deinit(&image);
    }
    elf_note_deinit(&note);
}

/* Opens nothing but a file: opening a device can do things. The descriptor, or -1. */
static int open_regular(const char *path, struct stat *st)
{
    GS_CLOSE_FD int place = open(path, O_PATH | O_CLOEXEC);
    char link[32];

    if (place < 0 || fstat(place, st) != 0 || !S_ISREG(st->st_mode))
        return -1;
    snprintf(link, sizeof link, "/proc/self/fd/%d", place);
    return open(link, O_RDONLY | O_CLOEXEC);
}

const struct elf_object *elf_reach_object(struct elf_reach *reach, const char *path)
{
    const struct elf_object *const *found;
    struct elf_object key, *object;
    struct stat st;
    GS_CLOSE_FD int fd = open_regular(path, &st);

    if (fd < 0)
        return NULL;
    key = (struct elf_object){.device = st.st_dev, .inode = st.st_ino};
    pthread_mutex_lock(&reach->lock);
    found = tfind(&key, &reach->objects, compare_objects);
    pthread_mutex_unlock(&reach->lock);
    object = found == NULL ? calloc(1, sizeof *object) : NULL;
    if (object != NULL) {
        *object = key;
        read_file(object, path, fd, st.st_size);
        pthread_mutex_lock(&reach->lock);
        found = tsearch(object, &reach->objects, compare_objects);
        pthread_mutex_unlock(&reach->lock);
        if (found == NULL || *found != object)
            free_object(object);
    }
    return found != NULL ? *found : NULL;
}
