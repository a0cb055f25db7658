/* SPDX-License-Identifier: Apache-2.0
 *
 * past.c: reads the objects in memory that the loader has loaded (past.h).
 *
 * Only functions count that need memory in place, or own it. An import that is not bound yet (lazy
 * binding) is taken to be bound to the first object in the loader's list: gpushare stands before
 * libc and the driver there if the program itself is patched.
 *
 * All is read inside dl_iterate_phdr(), so no object is unloaded meanwhile. It must not call the
 * loader: a thread that loads an object may wait at the gate, in a constructor. State: what was
 * seen; under the lock that dl_iterate_phdr() holds. Any thread.
 */
#include "runtime/base/past.h"

#include <elf.h>
#include <link.h>

#include "runtime/base/others.h"

#define MOST_SEEN 4096
#define LONGEST   128 /* of a name */

static const struct row {
    const char *symbol, *family, *class;
} rows[] = {
#define GS_API(symbol, base, since, variant, family, class) {#symbol, #family, #class},
#include "wrap/driver_api.def"
};

static struct {
    unsigned long long loaded, unloaded; /* the loader's counts at the last look */
    uintptr_t seen[MOST_SEEN];           /* addresses of program headers, hashed; 0: free */
    bool said;
} self;

struct object {
    const char *path;
    uintptr_t base, low, high;
    const ElfW(Phdr) * headers;
    unsigned count;
    const ElfW(Sym) * symbols;
    const char *strings;
};

/* --- names --- */

static int compare_row(const void *name, const void *row)
{
    return strcmp(name, ((const struct row *)row)->symbol);
}

/* The place of a driver function in rows; -1: it is none. */
static int row_of(const char *name)
{
    const void *found =
        bsearch(name, rows, sizeof rows / sizeof rows[0], sizeof rows[0], compare_row);

    return found == NULL
               ? -1
               : (int)(((const char *)found - (const char *)rows) / (ptrdiff_t)sizeof rows[0]);
}

/* True if memory that such a call uses must not move meanwhile. */
static bool needs_memory(int row)
{
    return strcmp(rows[row].class, "GATE") == 0 ||
           (strcmp(rows[row].class, "HOOK") == 0 && strcmp(rows[row].family, "ALLOC") == 0);
}

static bool is_driver_name(const char *name)
{
    return name[0] == 'c' && name[1] == 'u' && name[2] >= 'A' && name[2] <= 'Z';
}

bool gs_past_is_known(const char *name)
{
    static const char *const known[] = {
#define GS_SIDE(base) #base,
#include "wrap/driver_api.def"
    };

    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        const size_t length = strlen(known[i]);

        if (strncmp(name, known[i], length) == 0 &&
            (name[length] == '\0' || name[length] == '_'))
            return true;
    }
    return false;
}

static bool is_word(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           c == '_';
}

/* The row of the longest name that the word begins with, or -1. */
static int row_at(const char *word, size_t length)
{
    char name[LONGEST];
    int row = -1;

    length = length < sizeof name ? length : sizeof name - 1;
    memcpy(name, word, length);
    for (; length > 2 && row < 0; length--) {
        name[length] = '\0';
        row = row_of(name);
    }
    return row;
}

/* True if the bytes name functions: a string of its own, or two that stand in a row, since
 * not all compilers end strings with a zero byte. first: the first name of the object, or -1. */
static bool names_functions(const char *bytes, size_t size, int *first)
{
    const char *end = bytes + size, *at = bytes;

    while ((at = memmem(at, (size_t)(end - at), "cu", 2)) != NULL) {
        const char *word = at;
        size_t length = 0;
        int row;

        at += 2;
        while (word + length < end && length < LONGEST && is_word(word[length]))
            length++;
        row = length > 3 && is_driver_name(word) ? row_at(word, length) : -1;
        if (row < 0 || !needs_memory(row))
            continue;
        if (strlen(rows[row].symbol) == length && word + length < end && word[length] == '\0' &&
            (word == bytes || !is_word(word[-1])))
            return true;
        if (*first >= 0 && *first != row)
            return true;
        *first = row;
    }
    return false;
}

static bool data_names_functions(const struct object *object)
{
    int first = -1;

    for (unsigned i = 0; i < object->count; i++) {
        const ElfW(Phdr) *segment = &object->headers[i];

        if (segment->p_type == PT_LOAD && (segment->p_flags & PF_R) != 0 &&
            names_functions((const char *)object->base + segment->p_vaddr, segment->p_filesz,
                            &first))
            return true;
    }
    return false;
}

/* --- imports --- */

enum binding { ELSEWHERE, OURS, LIBC, DRIVER, OPEN };

static enum binding binding_of(const struct object *object, uintptr_t value)
{
    if (value == (uintptr_t)gs_libc_dlsym || value == (uintptr_t)gs_libc_dlvsym)
        return LIBC;
    if (gs_driver_contains((const void *)value))
        return DRIVER;
    if (gs_driver_is_wrapper((const void *)value))
        return OURS;
    return value >= object->low && value < object->high ? OPEN : ELSEWHERE;
}

/* What is known of an object's imports. */
struct imports {
    bool looks_up;       /* it binds libc's dlsym */
    const char *past;    /* a function that is bound to the driver; NULL: none */
    const char *unknown; /* the same of a function that the table does not have */
};

static void take_import(const struct object *object, const char *name, uintptr_t value,
                        struct imports *imports)
{
    const bool first = gs_others_come_first();
    const enum binding binding = binding_of(object, value);
    int row;

    if (strcmp(name, "dlsym") == 0 || strcmp(name, "dlvsym") == 0) {
        imports->looks_up |= binding == LIBC || (binding == OPEN && !first);
        return;
    }
    if (!is_driver_name(name) || (binding != DRIVER && binding != OPEN))
        return;
    row = row_of(name);
    if (row >= 0 && needs_memory(row) && (binding == DRIVER || !first))
        imports->past = name;
    else if (row < 0 && !gs_past_is_known(name) && (binding == DRIVER || gs_driver_has(name)))
        imports->unknown = name;
}

static void take_relocations(const struct object *object, const ElfW(Rela) * entries,
                             size_t bytes, struct imports *imports)
{
    for (size_t i = 0; i < bytes / sizeof *entries; i++) {
        const size_t symbol = ELF64_R_SYM(entries[i].r_info);
        const uintptr_t slot = object->base + entries[i].r_offset;
        const char *name;

        if (symbol == 0 || object->symbols[symbol].st_shndx != SHN_UNDEF ||
            slot < object->low || slot + sizeof slot > object->high)
            continue;
        name = object->strings + object->symbols[symbol].st_name;
        if ((name[0] == 'c' && name[1] == 'u') || (name[0] == 'd' && name[1] == 'l')) {
            uintptr_t value;

            memcpy(&value, (const void *)slot, sizeof value);
            take_import(object, name, value, imports);
        }
    }
}

static struct imports read_imports(struct object *object, const ElfW(Dyn) * dynamic)
{
    struct imports imports = {0};
    const ElfW(Rela) *jumps = NULL, *others = NULL;
    size_t jump_bytes = 0, other_bytes = 0;

    for (; dynamic->d_tag != DT_NULL; dynamic++) {
        /* glibc relocates most of these pointers in place, but not those of the vDSO */
        const uintptr_t value = dynamic->d_un.d_ptr,
                        address = value >= object->base ? value : object->base + value;

        if (dynamic->d_tag == DT_SYMTAB)
            object->symbols = (const ElfW(Sym) *)address;
        else if (dynamic->d_tag == DT_STRTAB)
            object->strings = (const char *)address;
        else if (dynamic->d_tag == DT_JMPREL)
            jumps = (const ElfW(Rela) *)address;
        else if (dynamic->d_tag == DT_RELA)
            others = (const ElfW(Rela) *)address;
        else if (dynamic->d_tag == DT_PLTRELSZ)
            jump_bytes = value;
        else if (dynamic->d_tag == DT_RELASZ)
            other_bytes = value;
    }
    if (object->symbols == NULL || object->strings == NULL)
        return imports;
    if (jumps != NULL)
        take_relocations(object, jumps, jump_bytes, &imports);
    if (others != NULL)
        take_relocations(object, others, other_bytes, &imports);
    return imports;
}

/* --- objects --- */

/* The end of a path that is too long for a message. */
static const char *short_path(const char *path)
{
    const size_t length = strlen(path), most = 90;

    return length <= most ? path : path + length - most;
}

static void say_object(const struct object *object, const struct imports *imports)
{
    char text[GS_REMARK_BYTES];
    const char *path =
        object->path[0] != '\0' ? short_path(object->path) : "the program itself";

    if (imports->unknown != NULL)
        snprintf(text, sizeof text,
                 "partly covered, memory not moved: %s calls %.40s, which this version of "
                 "gpushare does not know; update gpushare",
                 path, imports->unknown);
    else
        snprintf(
            text, sizeof text,
            "partly covered, memory not moved: %s calls the driver past gpushare; patch it "
            "with gpushare-patch",
            path);
    gs_log("%s", text);
    gs_daemon_remark(text);
}

static bool is_new(uintptr_t key)
{
    size_t at = (key >> 4) * 2654435761u % MOST_SEEN;

    for (unsigned tries = 0; tries < MOST_SEEN; tries++, at = (at + 1) % MOST_SEEN) {
        if (self.seen[at] == key)
            return false;
        if (self.seen[at] == 0) {
            self.seen[at] = key;
            return true;
        }
    }
    return true;
}

static int look_at(struct dl_phdr_info *info, size_t size, void *first)
{
    struct object object = {.path = info->dlpi_name,
                            .base = info->dlpi_addr,
                            .low = UINTPTR_MAX,
                            .headers = info->dlpi_phdr,
                            .count = info->dlpi_phnum};
    const ElfW(Dyn) *dynamic = NULL;
    struct imports imports;

    if (*(bool *)first) {
        *(bool *)first = false;
        if (size < offsetof(struct dl_phdr_info, dlpi_subs) + sizeof info->dlpi_subs ||
            (info->dlpi_adds == self.loaded && info->dlpi_subs == self.unloaded))
            return 1;
        if (info->dlpi_subs != self.unloaded) /* an address may be another object's now */
            memset(self.seen, 0, sizeof self.seen);
        self.loaded = info->dlpi_adds;
        self.unloaded = info->dlpi_subs;
    }
    for (unsigned i = 0; i < object.count; i++) {
        const ElfW(Phdr) *segment = &object.headers[i];
        const uintptr_t from = object.base + segment->p_vaddr;

        if (segment->p_type == PT_DYNAMIC)
            dynamic = (const ElfW(Dyn) *)from;
        if (segment->p_type != PT_LOAD)
            continue;
        object.low = from < object.low ? from : object.low;
        object.high =
            from + segment->p_memsz > object.high ? from + segment->p_memsz : object.high;
    }
    if (dynamic == NULL || !is_new((uintptr_t)object.headers) || dynamic == _DYNAMIC ||
        gs_driver_contains((const void *)object.low))
        return 0;
    imports = read_imports(&object, dynamic);
    if (imports.past == NULL && imports.unknown == NULL &&
        (!imports.looks_up || !data_names_functions(&object)))
        return 0;
    say_object(&object, &imports);
    return 1;
}

void gs_past_look(void)
{
    bool first = true;

    if (gs_runtime.config.disabled || gs_others_is_door() ||
        atomic_load_explicit(&gs_runtime.partial, memory_order_relaxed) ||
        !gs_driver_contains((const void *)gs_driver.cuInit))
        return;
    dl_iterate_phdr(look_at, &first);
}
