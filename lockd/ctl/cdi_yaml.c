/* SPDX-License-Identifier: Apache-2.0
 *
 * cdi_yaml.c: reads the part of YAML that nvidia-ctk writes. Anything else is refused, not guessed.
 * Recursion ends at DEPTH_MOST. No state.
 */
#include "lockd/ctl/cdi_yaml.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define DEPTH_MOST 16

struct yaml {
    const char *at;  /* the beginning of a line, or its rest behind "- " */
    unsigned indent; /* columns before `at`, if it is a rest */
    unsigned line;
    unsigned depth;
    struct gs_err *err;
};

static json_t *parse_block(struct yaml *yaml, unsigned indent);

static json_t *refuse_line(struct yaml *yaml, const char *why)
{
    gs_err_set(yaml->err, -EINVAL, "line %u: %s", yaml->line, why);
    return NULL;
}

static size_t line_length(const char *at)
{
    return strcspn(at, "\r\n");
}

static void skip_line(struct yaml *yaml)
{
    yaml->at += line_length(yaml->at);
    yaml->at += *yaml->at == '\r';
    yaml->at += *yaml->at == '\n';
    yaml->indent = 0;
    yaml->line++;
}

/* Skips empty lines, comments and the mark of a document. Returns the column of the next text;
 * -1: the end. */
static int next_column(struct yaml *yaml)
{
    for (; *yaml->at != '\0'; skip_line(yaml)) {
        const size_t blanks = strspn(yaml->at, " ");
        const char *word = yaml->at + blanks;

        if (strchr("#\r\n", *word) == NULL && strncmp(word, "---", 3) != 0)
            return (int)(yaml->indent + blanks);
        if (*word == '\0')
            break;
    }
    return -1;
}

static json_t *plain_scalar(const char *text, size_t length)
{
    char *end;
    char number[24];

    if (length == 4 && strncmp(text, "true", 4) == 0)
        return json_true();
    if (length == 5 && strncmp(text, "false", 5) == 0)
        return json_false();
    if (length > 0 && length < sizeof number && strspn(text, "-0123456789") >= length) {
        memcpy(number, text, length);
        number[length] = '\0';
        errno = 0;
        const long long value = strtoll(number, &end, 10);

        if (*end == '\0' && errno == 0)
            return json_integer(value);
    }
    return json_stringn(text, length);
}

/* A quoted or plain scalar that fills the rest of the line. */
static json_t *parse_scalar(struct yaml *yaml, const char *text, size_t length)
{
    const char quote = *text;
    json_t *value;

    while (length > 0 && text[length - 1] == ' ')
        length--;
    if (length == 0)
        return json_null();
    if (strchr("&*!|>%@`?", quote) != NULL ||
        (strchr("[{", quote) != NULL && (length != 2 || text[1] != quote + 2)))
        return refuse_line(yaml, "this form of YAML is not understood: write JSON instead");
    if (strchr("[{", quote) != NULL)
        return quote == '[' ? json_array() : json_object();
    if (quote != '"' && quote != '\'')
        return plain_scalar(text, length);
    if (length < 2 || text[length - 1] != quote)
        return refuse_line(yaml, "a quote does not end");
    if (quote == '"') { /* the escapes are those of JSON */
        value = json_loadb(text, length, JSON_DECODE_ANY, NULL);
        return value != NULL ? value : refuse_line(yaml, "a quoted text is not valid");
    }
    return json_stringn(text + 1, length - 2);
}

/* The length of the key at text, followed by a colon and a blank or the end of the line; 0:
 * there is no key. */
static size_t key_length(const char *text, size_t length)
{
    for (size_t i = 0; i < length; i++)
        if (text[i] == ':' && (i + 1 == length || text[i + 1] == ' '))
            return i;
    return 0;
}

static json_t *parse_sequence(struct yaml *yaml, int column)
{
    json_t *array = json_array();

    while (next_column(yaml) == column) {
        const char *word = yaml->at + ((unsigned)column - yaml->indent);
        json_t *item;

        if (word[0] != '-' || (word[1] != ' ' && line_length(word) != 1))
            break;
        /* the text after the dash counts as a line of its own */
        yaml->at = word + 1;
        yaml->indent = (unsigned)column + 1;
        item = parse_block(yaml, (unsigned)column + 1);
        if (item == NULL || json_array_append_new(array, item) != 0) {
            json_decref(array);
            return NULL;
        }
    }
    return array;
}

static json_t *parse_value(struct yaml *yaml, const char *text, size_t length, int column)
{
    const size_t blanks = strspn(text, " ");
    int next;

    if (blanks < length) {
        json_t *value = parse_scalar(yaml, text + blanks, length - blanks);

        skip_line(yaml);
        return value;
    }
    skip_line(yaml);
    next = next_column(yaml);
    /* a sequence may have the column of its key */
    if (next == column && yaml->at[(unsigned)next - yaml->indent] == '-')
        return parse_block(yaml, (unsigned)column);
    return next > column ? parse_block(yaml, (unsigned)column + 1) : json_null();
}

static json_t *parse_mapping(struct yaml *yaml, int column)
{
    json_t *object = json_object();

    while (next_column(yaml) == column) {
        const char *word = yaml->at + ((unsigned)column - yaml->indent);
        const size_t length = line_length(word), key = key_length(word, length);
        char name[256];
        json_t *value = NULL;

        if (key == 0 || key >= sizeof name) {
            refuse_line(yaml, "expected a key and a colon");
        } else {
            memcpy(name, word, key);
            name[key] = '\0';
            value = parse_value(yaml, word + key + 1, length - key - 1, column);
        }
        if (value == NULL || json_object_set_new(object, name, value) != 0) {
            json_decref(object);
            return NULL;
        }
    }
    return object;
}

/* Parses the lines in column `indent` or further to the right. */
static json_t *parse_block(struct yaml *yaml, unsigned indent)
{
    const int column = next_column(yaml);
    const char *word;
    json_t *value;
    size_t length;

    if (column < (int)indent)
        return json_null();
    word = yaml->at + ((unsigned)column - yaml->indent);
    length = line_length(word);
    if (++yaml->depth > DEPTH_MOST)
        return refuse_line(yaml, "too deep");
    if (word[0] == '-' && (word[1] == ' ' || length == 1)) {
        value = parse_sequence(yaml, column);
    } else if (*word != '"' && *word != '\'' && key_length(word, length) != 0) {
        value = parse_mapping(yaml, column);
    } else {
        value = parse_scalar(yaml, word, length);
        skip_line(yaml);
    }
    yaml->depth--;
    return value;
}

json_t *cdi_yaml_parse(const char *text, struct gs_err *err)
{
    struct yaml yaml = {.at = text, .line = 1, .err = err};
    json_t *value = parse_block(&yaml, 0);

    if (value != NULL && next_column(&yaml) >= 0) {
        json_decref(value);
        return refuse_line(&yaml, "the indentation fits no line above");
    }
    return value;
}
