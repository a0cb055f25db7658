/* SPDX-License-Identifier: Apache-2.0
 *
 * facts.c: finds routable imports and traces of CUDA.
 *
 * A stripped program with a static cudart has no symbol that shows it. Only strings remain, since
 * cudart looks up the driver by name. So the data is searched as a stream, a chunk at a time. The
 * name of the driver's library may be composed at run time, the names of its functions are not:
 * in a file that imports dlsym they show that it calls the driver. No state, any thread.
 */
#include "rewriter/elf/facts.h"
#include "rewriter/elf/grow.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* The wrap list and the driver names, derived from the table by the preprocessor. Owns two
 * constant arrays, both in strcmp order because the table is (tests/rewriter/elf/test_pieces.c
 * checks it). Any thread. */

struct driver_name {
    const char *name;
    int since;
};

static const struct driver_name driver_names[] = {
#define GS_API(symbol, base, version, variant, family, kind) {#symbol, version},
#include "wrap/driver_api.def"
#undef GS_API
};

static const char *const wrapped[] = {
#define GS_GATE(symbol, ...) #symbol,
#define GS_SYNC(symbol, ...) #symbol,
#define GS_ROOM(symbol, ...) #symbol,
#define GS_HOOK(symbol, ...) #symbol,
#include "wrap/driver_api.def"
    "dlsym",
    "dlvsym",
};

static int compare_wrapped(const void *key, const void *row)
{
    return strcmp(key, *(const char *const *)row);
}

static int compare_driver(const void *key, const void *row)
{
    return strcmp(key, ((const struct driver_name *)row)->name);
}

static const struct driver_name *find_driver(const char *name)
{
    return bsearch(name, driver_names, sizeof driver_names / sizeof driver_names[0],
                   sizeof driver_names[0], compare_driver);
}

int elf_name_is_wrapped(const char *name)
{
    return bsearch(name, wrapped, sizeof wrapped / sizeof wrapped[0], sizeof wrapped[0],
                   compare_wrapped) != NULL;
}

int elf_name_driver_since(const char *name)
{
    const struct driver_name *row = find_driver(name);

    return row != NULL ? row->since : 0;
}

/* The longest driver function that the text begins with, which need not end there; NULL: none. */
static const char *elf_name_driver_start(const char *text, size_t length)
{
    char name[128];

    if (length >= sizeof name)
        length = sizeof name - 1;
    memcpy(name, text, length);
    for (; length > 2; length--) {
        const struct driver_name *row;

        name[length] = '\0';
        row = find_driver(name);
        if (row != NULL)
            return row->name;
    }
    return NULL;
}

int elf_name_is_runtime_api(const char *name)
{
    if (strncmp(name, "__cuda", 6) == 0)
        return 1;
    return strncmp(name, "cuda", 4) == 0 && name[4] >= 'A' && name[4] <= 'Z';
}

uint32_t elf_names_fingerprint(void)
{
    uint32_t hash = 2166136261u; /* FNV-1a */

    for (size_t i = 0; i < sizeof wrapped / sizeof wrapped[0]; i++)
        for (const char *p = wrapped[i];; p++) {
            hash = (hash ^ (uint8_t)*p) * 16777619u;
            if (*p == '\0')
                break;
        }
    return hash;
}

#define CHUNK     (1u << 17) /* bytes read at a time; stays in the cache */
#define OVERLAP   128u       /* bytes kept between chunks, more than the longest name */
#define MAX_FOUND (1u << 20) /* imports; the table has about 500 names */
#define MAX_NAMED 256u       /* names of libraries; a program has a few */
#define IN_BYTES_MOST                                                                          \
    (1ull << 31) /* bytes of a refused file that are read; the largest CUDA library has 1.2e9 */

static int add_import(struct elf_facts *facts, size_t *room, struct elf_import import)
{
    struct elf_import *list;

    if (facts->import_count == MAX_FOUND)
        return -ENOEXEC;
    list = elf_grow(facts->imports, facts->import_count, room, sizeof *list);
    if (list == NULL)
        return -ENOMEM;
    facts->imports = list;
    facts->imports[facts->import_count++] = import;
    return 0;
}

static int look_at_symbol(struct elf_facts *facts, size_t *room, const struct elf_image *image,
                          size_t index, const Elf64_Sym *symbol)
{
    const char *name = elf_image_string(image, symbol->st_name);
    bool program = image->interpreter != NULL && image->dynamic.soname == NULL;

    if (symbol->st_shndx != SHN_UNDEF || index == 0)
        return 0;
    if (name == NULL)
        return -ENOEXEC;
    if (facts->driver_import == NULL && elf_name_driver_since(name) > 0)
        facts->driver_import = name;
    if (facts->runtime_import == NULL && elf_name_is_runtime_api(name))
        facts->runtime_import = name;
    facts->starts_programs |= strncmp(name, "exec", 4) == 0 || strcmp(name, "fexecve") == 0 ||
                              strncmp(name, "posix_spawn", 11) == 0;
    facts->imports_dlsym |= strcmp(name, "dlsym") == 0 || strcmp(name, "dlvsym") == 0;
    facts->imports_dlopen |= strcmp(name, "dlopen") == 0;
    facts->imports_dlmopen |= strcmp(name, "dlmopen") == 0;
    if (!elf_name_is_wrapped(name))
        return 0;
    return add_import(
        facts, room,
        (struct elf_import){.index = (uint32_t)index,
                            .name = symbol->st_name,
                            .keeps_name = symbol->st_value != 0 ||
                                          (program && index >= image->tables.gnu_hash_first)});
}

static int read_symbols(struct elf_facts *facts, const struct elf_image *image,
                        struct gs_err *err)
{
    Elf64_Sym chunk[256]; /* the stack may be small */
    size_t room = 0;

    for (size_t at = 0; at < image->tables.symbol_count;) {
        size_t n = image->tables.symbol_count - at;

        if (n > sizeof chunk / sizeof chunk[0])
            n = sizeof chunk / sizeof chunk[0];
        if (elf_source_read(&image->source, image->tables.symbols.offset + at * sizeof chunk[0],
                            chunk, n * sizeof chunk[0], err) != 0)
            return -ENOEXEC;
        for (size_t i = 0; i < n; i++) {
            int ret = look_at_symbol(facts, &room, image, at + i, &chunk[i]);

            if (ret != 0)
                return gs_err_set(err, ret,
                                  "%s: damaged: dynamic symbol %zu has the name offset 0x%x",
                                  image->source.name, at + i, chunk[i].st_name);
        }
        at += n;
    }
    return 0;
}

bool elf_facts_is_cuda_library(const char *name)
{
    static const char *const starts[] = {
        "libcublas", "libcudnn",    "libcufft",  "libcurand", "libcusolver", "libcusparse",
        "libnccl",   "libcutensor", "libcufile", "libnvjpeg", "libnpp",      "libnvinfer"};
    const char *base = basename(name);

    for (size_t i = 0; i < sizeof starts / sizeof starts[0]; i++)
        if (strncmp(base, starts[i], strlen(starts[i])) == 0)
            return true;
    /* libcuda, libcudart, libtorch_cuda, libc10_cuda, ...; but not ICU's libicudata */
    if (strncmp(base, "libicudata.", 11) == 0)
        return false;
    return strstr(base, "cuda") != NULL;
}

static bool holds_text(const uint8_t *bytes, size_t length, const char *text)
{
    return memmem(bytes, length, text, strlen(text)) != NULL;
}

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

/* Takes the word that begins with "cu" at `at`. A word that is a driver function's name shows
 * that the file looks it up. Compilers that end no string with a zero byte (Rust's, Go's) put
 * one behind the other; so a second name is as good when the first has no borders. */
static void take_word(struct elf_facts *facts, const char *text, const char *at, size_t left)
{
    const char *name;
    bool bordered;
    size_t n = 0;

    while (n < left && n < OVERLAP && (is_letter(at[n]) || (at[n] >= '0' && at[n] <= '9')))
        n++;
    name = elf_name_driver_start(at, n);
    if (name == NULL)
        return;
    bordered =
        strlen(name) == n && n < left && at[n] == '\0' && (at == text || !is_letter(at[-1]));
    if (bordered && elf_name_driver_since(name) > facts->newest_api)
        facts->newest_api = elf_name_driver_since(name);
    facts->looks_up_enough |=
        bordered || (facts->looked_up != NULL && facts->looked_up != name);
    if (facts->looked_up == NULL)
        facts->looked_up = name;
}

static void look_for_names(struct elf_facts *facts, const uint8_t *bytes, size_t length)
{
    const char *text = (const char *)bytes, *at = text, *end = text + length;

    while ((at = memmem(at, (size_t)(end - at), "cu", 2)) != NULL) {
        if (at + 2 < end && at[2] >= 'A' && at[2] <= 'Z')
            take_word(facts, text, at, (size_t)(end - at));
        at += 2;
    }
}

static bool is_path_character(char c)
{
    return is_letter(c) || (c >= '0' && c <= '9') || (c != '\0' && strchr("+-./", c) != NULL);
}

static void add_library(struct elf_facts *facts, const char *name, size_t length)
{
    char **list;

    for (size_t i = 0; i < facts->library_count; i++)
        if (strlen(facts->libraries[i]) == length &&
            memcmp(facts->libraries[i], name, length) == 0)
            return;
    list = reallocarray(facts->libraries, facts->library_count + 1, sizeof *list);
    if (list == NULL)
        return;
    facts->libraries = list;
    list[facts->library_count] = strndup(name, length);
    facts->library_count += list[facts->library_count] != NULL;
}

/* Takes the names libX.so and libX.so.N, with or without folders. Strings of Rust and Go have no
 * end: what follows ".so" and is no version is not part of the name. */
static void look_for_libraries(struct elf_facts *facts, const uint8_t *bytes, size_t length)
{
    const char *text = (const char *)bytes, *at = text, *end = text + length;

    while (facts->library_count < MAX_NAMED &&
           (at = memmem(at, (size_t)(end - at), ".so", 3)) != NULL) {
        const char *start = at, *stop = at + 3;

        while (start > text && at - start < OVERLAP && is_path_character(start[-1]))
            start--;
        while (stop + 1 < end && *stop == '.' && stop[1] >= '0' && stop[1] <= '9')
            for (stop++; stop < end && *stop >= '0' && *stop <= '9';)
                stop++;
        if (at - start > 1 && stop - start < OVERLAP)
            add_library(facts, start, (size_t)(stop - start));
        at += 3;
    }
}

static int search_segment(struct elf_facts *facts, const struct elf_image *image,
                          uint64_t offset, uint64_t size, uint8_t *buffer, struct gs_err *err)
{
    size_t kept = 0;

    while (size > 0) {
        size_t n = size < CHUNK ? (size_t)size : CHUNK;
        int ret = elf_source_read(&image->source, offset, buffer + kept, n, err);

        if (ret != 0)
            return ret;
        if (!facts->cudart_static)
            facts->cudart_static = holds_text(buffer, kept + n, "cudaErrorCudartUnloading");
        if (!facts->names_libcuda)
            facts->names_libcuda = holds_text(buffer, kept + n, "libcuda.so");
        if (!facts->names_cudart)
            facts->names_cudart = holds_text(buffer, kept + n, "libcudart.so");
        /* programs that carry others: PyInstaller's starts itself again, and is routed then */
        if (facts->starts_programs) {
            facts->is_nuitka |= holds_text(buffer, kept + n, "NUITKA_ONEFILE_RANDOM");
            facts->starts_programs = !holds_text(buffer, kept + n, "PYINSTALLER_") &&
                                     !holds_text(buffer, kept + n, "_MEIPASS");
        }
        look_for_names(facts, buffer, kept + n);
        look_for_libraries(facts, buffer, kept + n);
        offset += n;
        size -= n;
        n += kept;
        kept = n < OVERLAP ? n : OVERLAP;
        memmove(buffer, buffer + n - kept, kept);
    }
    return 0;
}

static int search_all(struct elf_facts *facts, const struct elf_image *image, bool all,
                      uint8_t *buffer, struct gs_err *err)
{
    int ret = 0;

    for (size_t i = 1; ret == 0 && i < image->section_count; i++) {
        const Elf64_Shdr *s = &image->sections[i];
        const char *name = elf_image_section_name(image, i);

        if (s->sh_type == SHT_PROGBITS && (s->sh_flags & SHF_ALLOC) &&
            (strncmp(name, ".rodata", 7) == 0 || strncmp(name, ".data", 5) == 0 ||
             strncmp(name, ".lrodata", 8) == 0 || strncmp(name, ".ldata", 6) == 0) &&
            (all || !elf_facts_cuda(facts)))
            ret = search_segment(facts, image, s->sh_offset, s->sh_size, buffer, err);
    }
    for (size_t i = 0; ret == 0 && image->section_count == 0 && i < image->header.e_phnum;
         i++) {
        const Elf64_Phdr *p = &image->segments[i];

        if (p->p_type == PT_LOAD && (all || !elf_facts_cuda(facts)))
            ret = search_segment(facts, image, p->p_offset, p->p_filesz, buffer, err);
    }
    return ret;
}

int elf_facts_read(struct elf_facts *facts, const struct elf_image *image, bool all,
                   struct gs_err *err)
{
    uint8_t *buffer = NULL;
    int ret;

    *facts = (struct elf_facts){0};
    ret = read_symbols(facts, image, err);
    if (ret == 0) {
        for (size_t i = 0; i < image->dynamic.count; i++) {
            const char *name;

            if (image->dynamic.entries[i].d_tag != DT_NEEDED)
                continue;
            name = elf_image_string(image, image->dynamic.entries[i].d_un.d_val);
            if (facts->needed == NULL && elf_facts_is_cuda_library(name))
                facts->needed = name;
            if (facts->cudart_shared == NULL && strstr(name, "libcudart.so") != NULL)
                facts->cudart_shared = name;
        }
        facts->is_cudart = image->dynamic.soname != NULL &&
                           strncmp(image->dynamic.soname, "libcudart.so", 12) == 0;
        facts->device_code = elf_image_section(image, ".nv_fatbin") != ELF_NO_SECTION ||
                             elf_image_section(image, ".nvFatBinSegment") != ELF_NO_SECTION;
        buffer = malloc(CHUNK + OVERLAP);
        ret = buffer != NULL ? search_all(facts, image, all, buffer, err)
                             : gs_err_set(err, -ENOMEM, "%s: no memory", image->source.name);
        free(buffer);
    }
    if (ret != 0)
        elf_facts_deinit(facts);
    else if (facts->is_cudart || facts->cudart_shared != NULL)
        facts->cudart_static =
            false; /* the name of an error is weaker evidence than a library */
    return ret;
}

bool elf_facts_in_bytes(const struct elf_source *source)
{
    const uint64_t size = source->size < IN_BYTES_MOST ? source->size : IN_BYTES_MOST;
    const struct elf_image image = {.source = *source};
    struct elf_facts facts = {0};
    uint8_t *buffer = malloc(CHUNK + OVERLAP);
    bool found = buffer != NULL && search_segment(&facts, &image, 0, size, buffer, NULL) == 0 &&
                 (facts.cudart_static || facts.looks_up_enough);

    free(buffer);
    elf_facts_deinit(&facts);
    return found;
}

void elf_facts_deinit(struct elf_facts *facts)
{
    for (size_t i = 0; i < facts->library_count; i++)
        free(facts->libraries[i]);
    free(facts->libraries);
    free(facts->imports);
    *facts = (struct elf_facts){0};
}

bool elf_facts_cuda(const struct elf_facts *facts)
{
    return facts->driver_import != NULL || facts->runtime_import != NULL ||
           facts->needed != NULL || facts->is_cudart || facts->cudart_static ||
           facts->device_code || facts->names_libcuda || facts->names_cudart ||
           (facts->imports_dlsym && facts->looks_up_enough);
}

void elf_facts_why(const struct elf_facts *facts, char *text, size_t size)
{
    const char *import =
        facts->driver_import != NULL ? facts->driver_import : facts->runtime_import;

    if (import != NULL)
        snprintf(text, size, "imports %s", import);
    else if (facts->cudart_static)
        snprintf(text, size, "contains the CUDA runtime");
    else if (facts->is_cudart)
        snprintf(text, size, "is the CUDA runtime");
    else if (facts->imports_dlsym && facts->looks_up_enough)
        snprintf(text, size, "looks up %s", facts->looked_up);
    else if (facts->names_libcuda || facts->names_cudart)
        snprintf(text, size, "opens %s", facts->names_libcuda ? "libcuda.so" : "libcudart.so");
    else if (facts->needed != NULL)
        snprintf(text, size, "needs %s", facts->needed);
    else
        snprintf(text, size, "contains device code");
}
