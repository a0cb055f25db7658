/* SPDX-License-Identifier: Apache-2.0
 *
 * complete.c: reads an unfinished command line by a table of options and prints
 * what may follow. No state.
 */
#include "common/complete.h"

#include <stdio.h>
#include <string.h>

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
