/* SPDX-License-Identifier: Apache-2.0
 *
 * options.c: reads a command line by a table (options.h), and finds the sockets that it names. No
 * state.
 */
#include "common/options.h"
#include "common/size.h"

#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Reads an unfinished command line by a table of options and prints what may follow. No state. */

#define GS_COMPLETE_COMMAND "__complete"

bool gs_complete_asked(int argc, char **argv)
{
    return argc >= 3 && strcmp(argv[1], GS_COMPLETE_COMMAND) == 0;
}

/* Returns the option whose value is the next word; NULL: the word is a flag, or contains its
 * value. */
static const struct gs_option *find_hungry(const struct gs_option *each, const char *word)
{
    const bool is_long = strncmp(word, "--", 2) == 0;
    const size_t length = strlen(word);

    for (; each != NULL && each->name != NULL; each++) {
        if (each->argument == NULL)
            continue;
        if (is_long ? length - 2 == strcspn(each->name, "=") &&
                          memcmp(word + 2, each->name, length - 2) == 0
                    : each->letter != 0 && word[length - 1] == each->letter)
            return each;
    }
    return NULL;
}

void gs_complete_read(struct gs_complete *place, const struct gs_option *table, bool stop,
                      int from, int argc, char **argv)
{
    *place = (struct gs_complete){.word = argv[argc - 1]};
    for (int i = from; i < argc - 1; i++) {
        const char *word = argv[i];

        if (strcmp(word, "=") == 0) /* bash splits --name=value */
            continue;
        if (place->value_of != NULL) {
            place->value_of = NULL;
        } else if (!place->only_operands && strcmp(word, "--") == 0) {
            place->only_operands = true;
        } else if (!place->only_operands && word[0] == '-' && word[1] != '\0') {
            place->value_of = find_hungry(table, word);
        } else {
            if (place->operand_count < GS_COMPLETE_OPERANDS)
                place->operands[place->operand_count] = word;
            if (place->operand_count++ == 0)
                place->first_operand = i;
            if (stop)
                return;
        }
    }
    if (place->value_of != NULL && strcmp(place->word, "=") == 0)
        place->word = "";
}

void gs_complete_offer(const struct gs_complete *place, const char *word, const char *help)
{
    if (strncmp(word, place->word, strlen(place->word)) != 0)
        return;
    printf("%s\t", word);
    for (; help != NULL && *help != '\0'; help++) { /* a line of --help may be wrapped */
        if (*help != '\n' && (*help != ' ' || help[1] != ' '))
            putchar(*help);
    }
    putchar('\n');
}

/* A place for names of things on the disk. */
static bool is_one_of(const char *word, size_t length, const char *const *names)
{
    for (; *names != NULL; names++) {
        if (strlen(*names) == length && strncmp(word, *names, length) == 0)
            return true;
    }
    return false;
}

void gs_complete_argument(const struct gs_complete *place, const char *argument)
{
    static const char *const files[] = {"FILE", "PATH", "OUT", "CMD", "PROGRAM", NULL};
    static const char *const folders[] = {"DIR", "FOLDER", NULL};

    for (const char *at = argument; *at != '\0';) {
        const size_t length = strcspn(at, "[|]");
        char word[64];

        if (is_one_of(at, length, files)) {
            puts("\tfiles");
        } else if (is_one_of(at, length, folders)) {
            puts("\tfolders");
        } else if (*at >= 'a' && *at <= 'z' && length < sizeof word) {
            memcpy(word, at, length);
            word[length] = '\0';
            gs_complete_offer(place, word, NULL);
        }
        at += length + (at[length] != '\0');
    }
}

bool gs_complete_options(const struct gs_complete *place, const struct gs_option *table)
{
    if (place->value_of != NULL) {
        gs_complete_argument(place, place->value_of->argument);
        return true;
    }
    if (place->only_operands || place->word[0] != '-')
        return false;
    for (; table != NULL && table->name != NULL; table++) {
        char word[64], letter[] = "-?";

        snprintf(word, sizeof word, "--%s", table->name);
        gs_complete_offer(place, word, table->help);
        letter[1] = table->letter;
        if (table->letter != 0)
            gs_complete_offer(place, letter, table->help);
    }
    return true;
}

int gs_complete_line(const struct gs_option *table, bool stop, const char *argument, int argc,
                     char **argv)
{
    struct gs_complete place;

    gs_complete_read(&place, table, stop, 2, argc, argv);
    if (!gs_complete_options(&place, table) && argument != NULL)
        gs_complete_argument(&place, argument);
    return fflush(stdout) == 0 ? 0 : 1;
}

/* Of each kind of number: how it is written, the unit of its bounds, and that unit's size. */
static const struct {
    const char *form, *unit;
    double factor;
} numbers[] = {
    [GS_OPTION_SECONDS] = {"a number of seconds", " seconds", 1e9},
    [GS_OPTION_MS] = {"a number of milliseconds", " milliseconds", 1e6},
    [GS_OPTION_PERCENT] = {"a number of percent", " percent", 1e4},
    [GS_OPTION_SIZE] = {"a size: write it as 512MiB or 2GiB", " bytes", 1},
    [GS_OPTION_COUNT] = {"a whole number", "", 1},
};

static bool parse_number(enum gs_option_kind kind, const char *text, uint64_t *value)
{
    double number;
    char *end;

    if (kind == GS_OPTION_SIZE)
        return gs_size_parse(text, value) == 0;
    errno = 0;
    if (kind == GS_OPTION_COUNT) {
        *value = strtoull(text, &end, 10);
        return *text >= '0' && *text <= '9' && *end == '\0' && errno == 0;
    }
    number = strtod(text, &end) * numbers[kind].factor;
    *value = number >= 0 && number < 1e19 ? (uint64_t)number : UINT64_MAX; /* out of bounds */
    return end != text && *end == '\0' && errno == 0 && isfinite(number);
}

static int read_number(const struct gs_option *option, const char *text, struct gs_err *err)
{
    const char *word = gs_option_word(option->kind, option->argument);
    const double factor = numbers[option->kind].factor;
    uint64_t value = UINT64_MAX;

    if (word == NULL || strcmp(text, word) != 0) {
        if (!parse_number(option->kind, text, &value))
            return gs_err_set(err, -EINVAL, "%s: '%s' is not %s", option->name, text,
                              numbers[option->kind].form);
        if (value < option->low || value > option->high)
            return gs_err_set(err, -EINVAL, "%s: %s is outside %.15g to %.15g%s", option->name,
                              text, (double)option->low / factor, (double)option->high / factor,
                              numbers[option->kind].unit);
    }
    *(uint64_t *)option->value = value;
    return 0;
}

static int read_signed(const struct gs_option *option, const char *text, struct gs_err *err)
{
    long long number;
    char *end;

    errno = 0;
    number = strtoll(text, &end, 10);
    if (end == text || *end != '\0' || errno != 0)
        return gs_err_set(err, -EINVAL, "%s: '%s' is not a whole number", option->name, text);
    if (number > (long long)option->high || number < -(long long)option->high)
        return gs_err_set(err, -EINVAL, "%s: %s is outside -%llu to %llu", option->name, text,
                          (unsigned long long)option->high, (unsigned long long)option->high);
    *(int64_t *)option->value = number;
    return 0;
}

/* words: "one|another". */
static int read_choice(const struct gs_option *option, const char *words, const char *text,
                       struct gs_err *err)
{
    char all[256] = "";
    size_t at = 0;
    uint64_t place = 0;

    for (const char *word = words; word != NULL; place++) {
        const size_t length = strcspn(word, "|");

        if (strlen(text) == length && strncmp(word, text, length) == 0) {
            *(uint64_t *)option->value = place;
            return 0;
        }
        if (at < sizeof all)
            at += (size_t)snprintf(all + at, sizeof all - at, "%s%.*s", place == 0 ? "" : ", ",
                                   (int)length, word);
        word = word[length] == '|' ? word + length + 1 : NULL;
    }
    return gs_err_set(err, -EINVAL, "%s: '%s' is not one of: %s", option->name, text, all);
}

const char *gs_option_word(enum gs_option_kind kind, const char *argument)
{
    const char *word = kind == GS_OPTION_SECONDS ? "never"
                       : kind == GS_OPTION_COUNT ? "none"
                                                 : "auto";
    const bool number = kind == GS_OPTION_SECONDS || kind == GS_OPTION_COUNT ||
                        kind == GS_OPTION_MS || kind == GS_OPTION_SIZE ||
                        kind == GS_OPTION_PERCENT;

    return number && argument != NULL && strstr(argument, word) != NULL ? word : NULL;
}

int gs_option_value(const struct gs_option *option, const char *text, struct gs_err *err)
{
    struct gs_option_list *list = option->value;

    if (option->value == NULL)
        return gs_err_set(err, -EINVAL, "%s: there is no place for its value", option->name);
    switch (option->kind) {
    case GS_OPTION_FLAG:
        *(bool *)option->value = true;
        return 0;
    case GS_OPTION_TEXT:
        *(const char **)option->value = text;
        return 0;
    case GS_OPTION_NAME:
        if (strlen(text) >= GS_OPTION_NAME_SIZE)
            return gs_err_set(err, -EINVAL, "%s: longer than %d bytes", option->name,
                              GS_OPTION_NAME_SIZE - 1);
        snprintf(option->value, GS_OPTION_NAME_SIZE, "%s", text);
        return 0;
    case GS_OPTION_LIST:
        if (list->count == GS_OPTION_LIST_MOST)
            return gs_err_set(err, -EINVAL, "%s: may be given only %d times", option->name,
                              GS_OPTION_LIST_MOST);
        list->texts[list->count++] = text;
        return 0;
    case GS_OPTION_SECONDS:
    case GS_OPTION_MS:
    case GS_OPTION_PERCENT:
    case GS_OPTION_SIZE:
    case GS_OPTION_COUNT:
        return read_number(option, text, err);
    case GS_OPTION_SIGNED:
        return read_signed(option, text, err);
    case GS_OPTION_YES:
        return read_choice(option, "no|yes", text, err);
    case GS_OPTION_CHOICE:
        return read_choice(option, option->argument, text, err);
    }
    return -EINVAL;
}

#define LONG_BASE 256 /* what getopt_long() returns for the first row */

/* The table in the form that getopt_long() expects. letters begins with "+:": getopt_long()
 * then neither reorders the arguments nor prints messages. */
static int make_table(const struct gs_option *table, struct option *rows, char *letters)
{
    size_t count = 0;

    letters = stpcpy(letters, "+:");
    for (; table[count].name != NULL; count++) {
        const struct gs_option *each = &table[count];

        if (count == GS_OPTIONS_MAX)
            return -ENOMEM;
        rows[count] = (struct option){
            .name = each->name,
            .has_arg = each->argument != NULL ? required_argument : no_argument,
            .val = LONG_BASE + (int)count,
        };
        if (each->letter != 0) {
            *letters++ = each->letter;
            if (each->argument != NULL)
                *letters++ = ':';
        }
    }
    rows[count] = (struct option){0};
    *letters = '\0';
    return 0;
}

/* The row that getopt_long() means; NULL: none. */
static const struct gs_option *row_of(const struct gs_option *table, int value)
{
    if (value >= LONG_BASE)
        return &table[value - LONG_BASE];
    for (; table->name != NULL; table++) {
        if (value != 0 && table->letter == value)
            return table;
    }
    return NULL;
}

const char gs_option_left_out[] = "";

static int take_option(const struct gs_option *table, void *into, int value, char **argv,
                       struct gs_err *err)
{
    const struct gs_option *row = row_of(table, value == '?' || value == ':' ? optopt : value);
    const bool may_lack = row != NULL && row->argument != NULL && row->argument[0] == '[';
    struct gs_option placed;

    if (row == NULL && optopt != 0)
        return gs_err_set(err, -EINVAL, "unknown option -%c (--help lists them)", optopt);
    if (row == NULL)
        return gs_err_set(err, -EINVAL, "unknown option %s (--help lists them)",
                          argv[optind - 1]);
    if (value == '?')
        return gs_err_set(err, -EINVAL, "--%s takes no value", row->name);
    if (value == ':' && !may_lack)
        return gs_err_set(err, -EINVAL, "--%s needs %s", row->name, row->argument);
    if (may_lack && optarg != NULL && optarg == argv[optind - 1] && optarg[0] == '-') {
        optind--; /* it is the next option */
        optarg = NULL;
    }
    placed = *row;
    if (placed.value == NULL && into != NULL)
        placed.value = (char *)into + row->field;
    return gs_option_value(&placed, optarg != NULL ? optarg : gs_option_left_out, err);
}

int gs_options_parse(const struct gs_option *table, void *into, bool stop, int argc,
                     char **argv, int *index, struct gs_err *err)
{
    struct option rows[GS_OPTIONS_MAX + 1];
    char letters[2 * GS_OPTIONS_MAX + 3];
    char **arguments = NULL;
    int count = 0, at = -1, code = make_table(table, rows, letters);

    if (code == 0)
        arguments = calloc((size_t)argc + 1, sizeof *arguments);
    if (arguments == NULL)
        return gs_err_set(err, -ENOMEM, "out of memory while reading the command line");
    opterr = 0;
    /* getopt begins at argv[1], after a name: glibc starts afresh with 0 */
    argc -= *index - 1;
    argv += *index - 1;
    for (optind = 0; code == 0;) {
        const bool whole = optind != at; /* no letter of a cluster (-ab) is left */
        int value = -1;

        at = optind == 0 ? 1 : optind;
        if (at < argc && /* a negative number is no option */
            !(whole && argv[at][0] == '-' && argv[at][1] >= '0' && argv[at][1] <= '9'))
            value = getopt_long(argc, argv, letters, rows, NULL);
        if (value != -1) {
            code = take_option(table, into, value, argv, err);
            continue;
        }
        at = optind == 0 ? 1 : optind;
        if (at >= argc || stop || (at > 1 && strcmp(argv[at - 1], "--") == 0))
            break;
        arguments[count++] = argv[at];
        optind = at + 1;
    }
    at = at > argc ? argc : at;
    while (at < argc) /* behind "--", or all with stop */
        arguments[count++] = argv[at++];
    memcpy(argv + argc - count, arguments, (size_t)count * sizeof *arguments);
    *index += argc - 1 - count;
    free(arguments);
    return code;
}

int gs_socket_places(const char *option, struct gs_places *places, struct gs_err *err)
{
    const char *name = option != NULL ? "--socket " : "GPUSHARE_SOCKET";
    const int code = option == NULL ? gs_places_find(places) : gs_places_name(places, option);

    if (code == -ENAMETOOLONG)
        return gs_err_set(err, -EINVAL, "%s%.200s: the socket's path is longer than %d bytes",
                          name, option != NULL ? option : "", GS_PATH_SIZE - 1);
    if (code != 0)
        return gs_err_set(err, code, "%s%.200s: give the full path", name,
                          option != NULL ? option : "");
    return 0;
}

void gs_help_row(FILE *to, const char *typed, unsigned column, const char *help,
                 const char *initial)
{
    if (strlen(typed) + 1 > column)
        fprintf(to, "%s\n%*s", typed, (int)column, "");
    else
        fprintf(to, "%-*s", (int)column, typed);
    fputs(help, to);
    if (initial != NULL && initial[0] != '\0')
        fprintf(to, " [%s]", initial);
    putc('\n', to);
}

void gs_options_help(const struct gs_option *table, FILE *file)
{
    for (; table->name != NULL; table++) {
        char left[80], letter[] = "-?, ";

        letter[1] = table->letter;
        snprintf(left, sizeof left, "  %s--%s%s%s", table->letter != 0 ? letter : "",
                 table->name, table->argument != NULL ? " " : "",
                 table->argument != NULL ? table->argument : "");
        gs_help_row(file, left, 31, table->help, table->initial);
    }
}
