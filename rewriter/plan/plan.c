/* SPDX-License-Identifier: Apache-2.0
 *
 * plan.c: runs the planning steps in order, or the one step for files that must not grow.
 *
 * Frees everything in struct elf_plan except image and facts. Files are read only through the
 * image's source, and none is written. No state, any thread.
 */
#include "rewriter/plan/plan.h"
#include "rewriter/elf/dynamic.h"
#include "rewriter/plan/block.h"
#include "rewriter/plan/slot.h"
#include "rewriter/plan/tail.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* The names that a patched file needs, the symbols that get them, and $ORIGIN in names. A routed
 * import S gets the name __wrap_S and the version index 1 (global, unversioned). It keeps its
 * place, since undefined symbols are in no GNU hash table. There are exceptions: an import with
 * an address (a canonical PLT entry of non-PIE code) is in the table, and mold puts others
 * there. In a program such imports keep their names and are routed by interposition instead:
 * libgpushare, the first DT_NEEDED, exports S as well. In a library they are renamed
 * nevertheless, since no search of the table finds an undefined symbol. No state, any thread. */

/* Appends prefix + text and returns its offset in the new string table. */
static uint64_t append_name(struct elf_plan *plan, const char *prefix, const char *text)
{
    uint64_t offset = plan->image->tables.strings.size + plan->names.size;

    memcpy(plan->names.bytes + plan->names.size, prefix, strlen(prefix));
    plan->names.size += strlen(prefix);
    memcpy(plan->names.bytes + plan->names.size, text, strlen(text) + 1);
    plan->names.size += strlen(text) + 1;
    return offset;
}

/* Decides which imports are routed, and makes their names. */
static int make_names(struct elf_plan *plan, const char *runtime, struct gs_err *err)
{
    const struct elf_image *image = plan->image;
    const uint16_t global = VER_NDX_GLOBAL;
    size_t length = strlen(runtime) + 1;

    for (size_t i = 0; i < plan->facts->import_count; i++)
        length += strlen(ELF_WRAP_PREFIX) +
                  strlen(elf_image_string(image, plan->facts->imports[i].name)) + 1;
    plan->names.bytes = calloc(1, length);
    if (plan->names.bytes == NULL)
        return -ENOMEM;
    plan->names.needed = append_name(plan, "", runtime);
    gs_each (import, plan->facts->imports, plan->facts->import_count) {
        uint64_t symbol = image->tables.symbols.offset + import->index * sizeof(Elf64_Sym);
        uint32_t name;
        int ret = 0;

        if (image->tables.versions.address != 0)
            ret = elf_plan_change(plan,
                                  image->tables.versions.offset + import->index * sizeof global,
                                  &global, sizeof global);
        if (ret == 0 && !import->keeps_name) {
            name = (uint32_t)append_name(plan, ELF_WRAP_PREFIX,
                                         elf_image_string(image, import->name));
            ret = elf_plan_change(plan, symbol + offsetof(Elf64_Sym, st_name), &name,
                                  sizeof name);
        }
        if (ret != 0)
            return ret;
    }
    if (image->tables.strings.size + plan->names.size > UINT32_MAX)
        return elf_refuse(image->source.name, err, "its string table is full");
    return 0;
}

/* Replaces $ORIGIN in the names of the dynamic section by the program's old folder, for a
 * copy of a program in another folder, which must still find its libraries. */

/* The first $ORIGIN of a name by glibc's rules (elf/dl-load.c, is_dst), and its length; or
 * NULL. */
static const char *find_token(const char *text, size_t *length)
{
    static const char *const tokens[] = {"$ORIGIN", "${ORIGIN}"};

    for (; (text = strchr(text, '$')) != NULL; text++)
        for (size_t i = 0; i < sizeof tokens / sizeof tokens[0]; i++) {
            *length = strlen(tokens[i]);
            if (strncmp(text, tokens[i], *length) == 0)
                return text;
        }
    return NULL;
}

char *elf_origin_expand(const char *text, const char *origin)
{
    size_t count = 0, length = 0;
    const char *at = text, *next;
    char *made, *to;

    for (; (at = find_token(at, &length)) != NULL; at += length)
        count++;
    made = malloc(strlen(text) + count * strlen(origin) + 1);
    if (made == NULL)
        return NULL;
    for (at = text, to = made; (next = find_token(at, &length)) != NULL; at = next + length) {
        to = mempcpy(to, at, (size_t)(next - at));
        to = stpcpy(to, origin);
    }
    memcpy(to, at, strlen(at) + 1);
    return made;
}

static bool has_origin(const struct elf_image *image, const Elf64_Dyn *entry)
{
    const char *name = elf_dynamic_is_name(entry->d_tag) && entry->d_tag != DT_SONAME
                           ? elf_image_string(image, entry->d_un.d_val)
                           : NULL;
    size_t length;

    return name != NULL && find_token(name, &length) != NULL;
}

bool elf_origin_is_used(const struct elf_image *image)
{
    for (size_t i = 0; i < image->dynamic.count; i++)
        if (has_origin(image, &image->dynamic.entries[i]))
            return true;
    return false;
}

/* Adds the entry's new name behind those of make_names(). 0 or -ENOMEM. */
static int pin_name(struct elf_plan *plan, Elf64_Dyn *entry)
{
    char *name =
        elf_origin_expand(elf_image_string(plan->image, entry->d_un.d_val), plan->origin);
    char *bytes =
        name != NULL ? realloc(plan->names.bytes, plan->names.size + strlen(name) + 1) : NULL;

    if (bytes != NULL) {
        plan->names.bytes = bytes;
        entry->d_un.d_val = append_name(plan, "", name);
    }
    free(name);
    return bytes != NULL ? 0 : -ENOMEM;
}

/* The step: replaces $ORIGIN in the file's names. 0 or a negative errno. */
static int elf_plan_origin(struct elf_plan *plan)
{
    int ret = 0;

    if (plan->origin == NULL)
        return 0;
    for (size_t i = 0; ret == 0 && i < plan->dynamic.count; i++)
        if (has_origin(plan->image, &plan->dynamic.entries[i]))
            ret = pin_name(plan, &plan->dynamic.entries[i]);
    return ret;
}

/* Patches a file without moving or adding a byte: for programs with a payload behind the
 * sections (PyInstaller, self-extracting), which find it from their own end.
 *
 * Linkers leave zeros between a segment's end and the next page. This space gets, in this
 * order, the name of the runtime library, the marker's text, the undo note and the marker's
 * trailer; the segment grows over them. It must be the segment of the string table, so that
 * the name is within DT_STRSZ. Imports keep their names: the runtime library, first
 * DT_NEEDED of a program, exports them as well. */

static uint64_t align_to_8(uint64_t value)
{
    return (value + 7) & ~7ull;
}

static int refuse_payload(const struct elf_plan *plan, const char *why, struct gs_err *err)
{
    const struct elf_image *image = plan->image;
    bool bare = image->section_count == 0;

    return elf_refuse(image->source.name, err,
                      "%llu bytes are appended to the program (an archive that it reads from "
                      "its own end?%s), so it cannot grow, and %s; relink it with gpushare-cc, "
                      "or patch the program before %s",
                      (unsigned long long)(image->source.size - image->data_end),
                      bare ? " what is left of sections without headers?" : "", why,
                      bare ? "the archive is appended or the headers are removed"
                           : "the archive is appended");
}

/* The PT_LOAD whose file part holds the string table. */
static size_t find_segment(const struct elf_image *image)
{
    size_t i = 0;

    for (; i < image->header.e_phnum; i++) {
        const Elf64_Phdr *p = &image->segments[i];

        if (p->p_type == PT_LOAD && image->tables.strings.offset >= p->p_offset &&
            image->tables.strings.offset - p->p_offset < p->p_filesz)
            break;
    }
    return i;
}

static void limit_end(uint64_t *end, uint64_t start, uint64_t offset, uint64_t size)
{
    if (size > 0 && offset + size > start && offset < *end)
        *end = offset > start ? offset : start;
}

/* The number of bytes behind the segment's file part that belong to nothing and can be mapped
 * with it. */
static uint64_t free_bytes(const struct elf_image *image, size_t index)
{
    const Elf64_Phdr *s = &image->segments[index];
    uint64_t start = s->p_offset + s->p_filesz, end = image->data_end, room;

    limit_end(&end, start, image->header.e_phoff, image->header.e_phnum * sizeof *s);
    limit_end(&end, start, image->header.e_shoff, image->section_count * sizeof(Elf64_Shdr));
    for (size_t i = 0; i < image->header.e_phnum; i++)
        limit_end(&end, start, image->segments[i].p_offset, image->segments[i].p_filesz);
    for (size_t i = 1; i < image->section_count; i++)
        if (image->sections[i].sh_type != SHT_NOBITS && image->sections[i].sh_type != SHT_NULL)
            limit_end(&end, start, image->sections[i].sh_offset, image->sections[i].sh_size);
    room = end > start ? end - start : 0;
    gs_each (p, image->segments, image->header.e_phnum) {
        uint64_t page = p->p_vaddr & ~(image->page - 1), top = s->p_vaddr + s->p_memsz;
        uint64_t space = page > top ? page - top : 0;

        if (p->p_type == PT_LOAD && p->p_vaddr > s->p_vaddr && room > space)
            room = space;
    }
    return room;
}

static int check_zero(const struct elf_plan *plan, uint64_t offset, uint64_t size,
                      struct gs_err *err)
{
    uint8_t *bytes = elf_source_load(&plan->image->source, offset, size, err);
    bool zero = bytes != NULL;

    for (uint64_t i = 0; zero && i < size; i++)
        zero = bytes[i] == 0;
    free(bytes);
    return zero ? 0
                : refuse_payload(plan, "the padding of its string table's segment is in use",
                                 err);
}

static int write_fill(struct elf_plan *plan, uint64_t start, uint64_t size, const uint8_t *undo)
{
    struct elf_marker_trailer trailer = {.magic = ELF_MARKER_MAGIC,
                                         .text_size = align_to_8(strlen(plan->marker) + 1),
                                         .undo_offset = plan->tail.undo_at,
                                         .undo_size = plan->tail.undo_size};
    uint8_t *fill = size > sizeof trailer ? calloc(1, (size_t)size) : NULL;
    int ret;

    if (fill == NULL)
        return -ENOMEM;
    memcpy(fill, plan->names.bytes, plan->names.size);
    memcpy(fill + (plan->tail.marker.offset - start), plan->marker, strlen(plan->marker));
    memcpy(fill + (plan->tail.undo_at - start), undo, plan->tail.undo_size);
    memcpy(fill + size - sizeof trailer, &trailer, sizeof trailer);
    ret = elf_plan_change(plan, start, fill, (size_t)size);
    free(fill);
    return ret;
}

static int change_segment(struct elf_plan *plan, size_t index, uint64_t end)
{
    Elf64_Phdr p = plan->image->segments[index];

    p.p_filesz = p.p_memsz = end - p.p_offset;
    return elf_plan_change(plan, plan->image->header.e_phoff + index * sizeof p, &p, sizeof p);
}

/* The two changes that are undone by bytes, in ascending order: program header, .dynamic. */
static int plan_rest(struct elf_plan *plan, size_t index, uint64_t start, uint64_t address,
                     uint64_t room, struct gs_err *err)
{
    uint64_t name_size = align_to_8(plan->names.size),
             text = align_to_8(strlen(plan->marker) + 1), size;
    struct elf_change fill = {.offset = start};
    uint8_t *undo;
    int ret = change_segment(plan, index, start); /* only its range counts here */

    ret = ret ?: elf_plan_needed_finish(plan);
    if (ret != 0)
        return ret;
    undo = elf_plan_undo(plan, &fill, err); /* to learn its size */
    if (undo == NULL)
        return -ENOMEM;
    free(undo);
    size = name_size + text + plan->tail.undo_size + sizeof(struct elf_marker_trailer);
    if (size > room || size > ELF_UNDO_ZEROS_MAX)
        return refuse_payload(plan, "the padding of its string table's segment is too small",
                              err);
    ret = check_zero(plan, start, size, err);
    if (ret != 0)
        return ret;
    fill.length = (uint32_t)size;
    undo = elf_plan_undo(plan, &fill, err);
    if (undo == NULL)
        return -ENOMEM;
    /* the place of the parts in the padding is final, and follows from the sizes */
    plan->tail.undo_at = start + name_size + text;
    plan->tail.marker = (struct elf_extent){
        .offset = start + name_size, .address = address + name_size, .size = size - name_size};
    ret = change_segment(plan, index, start + size);
    ret = ret ?: write_fill(plan, start, size, undo);
    free(undo);
    return ret;
}

/* Takes the place of all the other steps. 0, or a negative errno with err filled. */
static int plan_padding(struct elf_plan *plan, const char *runtime, struct gs_err *err)
{
    const struct elf_image *image = plan->image;
    size_t index = find_segment(image);
    const Elf64_Phdr *p;
    uint64_t start, address;
    int ret;

    plan->slot.way = ELF_SLOT_PADDING;
    if (image->interpreter == NULL)
        return refuse_payload(plan, "a library cannot be patched without growing", err);
    if (plan->origin != NULL)
        return refuse_payload(plan, "it finds its libraries from where it lies ($ORIGIN)", err);
    if (index == image->header.e_phnum)
        return refuse_payload(plan, "its string table is in no segment", err);
    p = &image->segments[index];
    if (p->p_memsz != p->p_filesz)
        return refuse_payload(plan, "its string table lies in a segment with bss", err);
    start = align_to_8(p->p_offset + p->p_filesz);
    address = p->p_vaddr + (start - p->p_offset);
    plan->names.size = strlen(runtime) + 1;
    plan->names.bytes = strdup(runtime);
    plan->tail.bytes = calloc(1, 1);
    if (plan->names.bytes == NULL || plan->tail.bytes == NULL)
        return -ENOMEM;
    plan->names.needed = address - image->tables.strings.address;
    plan->tail.strings = (struct elf_extent){.offset = image->tables.strings.offset,
                                             .address = image->tables.strings.address,
                                             .size = plan->names.needed + plan->names.size};
    plan->tail.segment.offset = plan->tail.end = image->source.size;
    plan->slot.count = image->header.e_phnum;
    plan->slot.added = index;
    ret = elf_plan_needed(plan, err);
    if (ret == 0) {
        uint64_t room = free_bytes(image, index), lost = start - (p->p_offset + p->p_filesz);

        ret = plan_rest(plan, index, start, address, room > lost ? room - lost : 0, err);
    }
    return ret;
}

/* Everything new goes behind the end of the file. */
static int plan_growth(struct elf_plan *plan, const char *runtime, struct gs_err *err)
{
    int ret = make_names(plan, runtime, err);

    ret = ret ?: elf_plan_needed(plan, err);
    ret = ret ?: elf_plan_origin(plan);
    ret = ret ?: elf_plan_slot(plan);
    ret = ret ?: elf_plan_lay_out(plan, err);
    ret = ret ?: elf_plan_init(plan);
    ret = ret ?: elf_plan_sections(plan, err);
    ret = ret ?: elf_plan_needed_finish(plan);
    return ret ?: elf_plan_tail(plan, err);
}

int elf_plan_make(struct elf_plan *plan, const struct elf_image *image,
                  const struct elf_facts *facts, const struct elf_wish *wish,
                  struct gs_err *err)
{
    int ret;

    memset(plan, 0, sizeof *plan);
    plan->image = image;
    plan->facts = facts;
    plan->origin = wish->origin;
    if (strlen(wish->marker) >= sizeof plan->marker)
        return gs_err_set(err, -ENAMETOOLONG, "%s: the path of the runtime library is too long",
                          image->source.name);
    memcpy(plan->marker, wish->marker, strlen(wish->marker) + 1);
    if (elf_image_has_payload(image))
        ret = plan_padding(plan, wish->runtime, err);
    else
        ret = plan_growth(plan, wish->runtime, err);
    if (ret != 0) {
        gs_err_set(err, ret, "%s: no memory",
                   image->source.name); /* if no step has said more */
        elf_plan_deinit(plan);
    }
    return ret;
}

void elf_plan_deinit(struct elf_plan *plan)
{
    for (size_t i = 0; i < plan->changes.count; i++)
        free((void *)(uintptr_t)plan->changes.list[i].bytes);
    free(plan->changes.list);
    free(plan->names.bytes);
    free(plan->dynamic.entries);
    free(plan->slot.segments);
    free(plan->sections);
    free(plan->tail.bytes);
    memset(plan, 0, sizeof *plan);
}

const char *elf_dynamic_way_text(enum elf_dynamic_way way)
{
    static const char *const text[] = {
        [ELF_DYNAMIC_SPARE] = "spare entry",
        [ELF_DYNAMIC_COUNT] = "in place of DT_RELACOUNT",
        [ELF_DYNAMIC_NOW] = "in place of DT_BIND_NOW",
        [ELF_DYNAMIC_VERSIONS] = "in place of DT_VERNEEDNUM",
    };

    return text[way];
}

const char *elf_slot_way_text(enum elf_slot_way way)
{
    static const char *const text[] = {
        [ELF_SLOT_NULL] = "spare PT_NULL",
        [ELF_SLOT_PROPERTY] = "in place of the PT_NOTE that duplicates PT_GNU_PROPERTY",
        [ELF_SLOT_GROW] = "table grows in place",
        [ELF_SLOT_NOTE] = "in place of the PT_GNU_PROPERTY that a PT_NOTE duplicates",
        [ELF_SLOT_PADDING] = "none: the file does not grow, the name is stored in padding",
        [ELF_SLOT_END] = "table moves to the end of the file (strip would break the file)",
    };

    return text[way];
}
