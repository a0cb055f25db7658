/* SPDX-License-Identifier: Apache-2.0
 *
 * setting_pages.c: a program that runs at build time: copies a page from stdin to stdout and
 * inserts the rows of settings.def that the page asks for. The pages are manual pages (scdoc) and
 * the example of a configuration file. No state.
 *
 * A line that begins with @settings is replaced by lines made of some of the rows:
 *   @settings man SECTION     of that section of the configuration file, as a list
 *   @settings set             those that `gpusharectl set` changes in the daemon; "set program": in a program
 *   @settings conf SECTION    as comments that show the defaults
 */
#include "lockd/protocol/setting_table.h"

#include <string.h>

#define each_row(row)                                                                          \
    const struct lockd_setting *row = lockd_settings;                                          \
    row->name != NULL;                                                                         \
    row++

static bool is_of_program(const struct lockd_setting *row)
{
    return row->scope == LOCKD_SCOPE_PROGRAM;
}

/* "*auto*|_MS_": literal words are bold, placeholders are underlined. */
static void put_argument(const struct lockd_setting *row)
{
    for (const char *word = row->argument; *word != '\0';) {
        const size_t length = strcspn(word, "|");
        const char mark = *word >= 'a' && *word <= 'z' ? '*' : '_';

        printf("%c%.*s%c%s", mark, (int)length, word, mark, word[length] == '|' ? "|" : "");
        word += length + (word[length] == '|');
    }
}

/* Escapes the characters that have a meaning for scdoc. */
static void put_sentence(const char *text)
{
    for (size_t i = 0; text[i] != '\0'; i++) {
        if (strchr("*_\\<>", text[i]) != NULL)
            putchar('\\');
        putchar(i == 0 && text[i] >= 'a' && text[i] <= 'z' ? text[i] - 'a' + 'A' : text[i]);
    }
    putchar('.');
}

static void put_man(const char *section)
{
    char range[64];

    for (each_row(row)) {
        if (strcmp(row->section, section) != 0)
            continue;
        printf(is_of_program(row) ? "_USER_|_UNIT_ = " : "*%s* = ", row->name);
        put_argument(row);
        fputs("\n\t", stdout);
        put_sentence(row->help);
        if (lockd_setting_unit(row)[0] != '\0' || row->kind == GS_OPTION_COUNT)
            printf(" Allowed: %s.", lockd_setting_range(row, range, sizeof range));
        if (row->initial[0] != '\0')
            printf(" Default: *%s*.", row->initial);
        fputs("\n\n", stdout);
    }
}

static void put_set(bool of_program)
{
    for (each_row(row)) {
        if (row->op == 0 || is_of_program(row) != of_program)
            continue;
        printf("\t*%s* %s", row->name, of_program ? "_PID_ " : "");
        put_argument(row);
        fputs("++\n\t", stdout);
        put_sentence(row->help);
        fputs("\n\n", stdout);
    }
}

static void put_conf(const char *section)
{
    char left[64];

    for (each_row(row)) {
        if (strcmp(row->section, section) != 0)
            continue;
        snprintf(left, sizeof left, "#%s = %s", is_of_program(row) ? "USER-or-UNIT" : row->name,
                 row->initial);
        printf("%-26s ; %s\n", left, row->help);
        if (row->kind == GS_OPTION_CHOICE || row->kind == GS_OPTION_YES)
            printf("%-26s ; (%s)\n", "#", row->argument);
    }
}

/* 0, or 1 for an unknown request. */
static int put_rows(const char *what)
{
    if (strncmp(what, "man ", 4) == 0)
        put_man(what + 4);
    else if (strncmp(what, "conf ", 5) == 0)
        put_conf(what + 5);
    else if (strcmp(what, "set") == 0 || strcmp(what, "set program") == 0)
        put_set(what[3] != '\0');
    else
        return fprintf(stderr, "setting_pages: what is '@settings %s'?\n", what), 1;
    return 0;
}

int main(void)
{
    char line[4096];
    int code = 0;

    while (fgets(line, sizeof line, stdin) != NULL) {
        if (strncmp(line, "@settings ", 10) == 0) {
            line[strcspn(line, "\n")] = '\0';
            code |= put_rows(line + 10);
            continue;
        }
        fputs(line, stdout);
    }
    return code != 0 || ferror(stdin) != 0 || fflush(stdout) != 0;
}
