/* SPDX-License-Identifier: Apache-2.0
 *
 * serve_command.c: `gpusharectl serve`: owns the token and the answers: a live page of the cards,
 * /status.json, /history.json, /metrics and /trace.json. Every request needs the token, even on a
 * loopback address, since every user of the machine can reach it. One thread.
 */
#include "common/fd.h"
#include "lockd/ctl/json.h"
#include "lockd/ctl/metrics.h"
#include "lockd/ctl/gpus.h"
#include "lockd/ctl/watch/http.h"
#include "lockd/ctl/watch/timeline.h"
#include "lockd/ctl/words.h"

#include <ctype.h>
#include <fcntl.h>
#include <jansson.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>

#define HISTORY_SAMPLES  300 /* of one second each */
#define HISTORY_PROGRAMS 256 /* in one sample; further programs are left out */

/* A ring of samples, one per second, each with the state and memory of all programs. */
struct sample_program {
    int32_t pid;
    uint32_t condition;
    uint8_t uuid[16];
    uint64_t resident, on_host;
    char name[sizeof((struct gs_wire_client *)0)->name];
};

struct sample {
    int64_t time;
    size_t count;
    struct sample_program *programs;
};

struct history {
    size_t next; /* the place of the next sample */
    struct sample samples[HISTORY_SAMPLES];
};

/* Adds a sample of the present states. time: seconds since the epoch. */
static void history_add(struct history *history, int64_t time, const struct ctl_answer *answer)
{
    struct sample *sample = &history->samples[history->next];
    const size_t most =
        answer->client_count < HISTORY_PROGRAMS ? answer->client_count : HISTORY_PROGRAMS;

    free(sample->programs);
    *sample =
        (struct sample){.time = time, .programs = calloc(most + 1, sizeof *sample->programs)};
    history->next = (history->next + 1) % HISTORY_SAMPLES;
    for (size_t i = 0; sample->programs != NULL && i < most; i++) {
        const struct gs_wire_client *client = &answer->clients[i];
        struct sample_program *program = &sample->programs[sample->count];

        if (client->condition == GS_CONDITION_NO_DEVICE)
            continue;
        *program = (struct sample_program){.pid = client->pid,
                                           .condition = client->condition,
                                           .resident = client->resident,
                                           .on_host = client->on_host};
        memcpy(program->uuid, client->uuid, sizeof program->uuid);
        memcpy(program->name, client->name, sizeof program->name);
        sample->count++;
    }
}

static json_t *sample_json(const struct sample *sample)
{
    json_t *programs = json_array();

    for (size_t i = 0; i < sample->count; i++) {
        const struct sample_program *program = &sample->programs[i];
        char uuid[LOCKD_UUID_SIZE];

        json_array_append_new(programs,
                              json_pack("{s:i, s:o, s:s, s:s, s:I, s:I}", "pid", program->pid,
                                        "name", ctl_json_text(program->name), "device",
                                        lockd_uuid_text(program->uuid, uuid), "state",
                                        ctl_condition_name(program->condition), "resident",
                                        (json_int_t)program->resident, "on_host",
                                        (json_int_t)program->on_host));
    }
    return json_pack("{s:I, s:o}", "time", (json_int_t)sample->time, "programs", programs);
}

/* An array, the oldest sample first: [{"time": s, "programs": [{"pid", "name", "device",
 * "state", "resident", "on_host"}]}]. NULL: no memory. */
static json_t *history_json(const struct history *history)
{
    json_t *array = json_array();

    for (size_t i = 0; i < HISTORY_SAMPLES; i++) {
        const struct sample *sample = &history->samples[(history->next + i) % HISTORY_SAMPLES];

        if (sample->programs != NULL)
            json_array_append_new(array, sample_json(sample));
    }
    return array;
}

#define DEFAULT_ADDRESS "127.0.0.1:9745"
#define COOKIE                                                                                 \
    "gpushare_token_%s=" /* the port: browsers share cookies among the ports of a host */
#define COOKIE_SIZE   32
#define TOKEN_MIN     16
#define TOKEN_MAX     128
#define TRACE_SECONDS 10
#define TICK_MS       1000
#define FRESH_NS      100000000u /* time for which an answer is used again */
#define NUMBER_BYTES  16
#define NONCE         "NONCENONCENONCENONCENONCENONCE32" /* in the page: 2 * NUMBER_BYTES characters */
#define SAFE_HEADERS  "X-Frame-Options: DENY\r\nReferrer-Policy: no-referrer\r\n"

static const char page[] = {
#include "serve_page.inc"
};

struct serve {
    struct ctl *ctl;
    struct history *history;
    const char *host; /* a further name that the header Host may have; NULL: none */
    char where[80];   /* ADDRESS:PORT */
    char token[TOKEN_MAX + 1];
    struct ctl_answer answer; /* the newest */
    uint64_t answered;        /* when it arrived */
    struct nvml *nvml;        /* NULL until the first look */
};

/* A random number of NUMBER_BYTES as hexadecimal text. 0 or -errno. */
static int make_number(char *text, struct gs_err *err)
{
    unsigned char bytes[NUMBER_BYTES];

    if (getrandom(bytes, sizeof bytes, 0) != (ssize_t)sizeof bytes)
        return gs_err_errno(err, -errno, "getrandom");
    for (size_t i = 0; i < sizeof bytes; i++)
        snprintf(text + 2 * i, 3, "%02x", bytes[i]);
    return 0;
}

/* Compares two texts in a time that does not depend on where they differ. */
static bool same_token(const char *token, const char *given, size_t length)
{
    unsigned char differs = 0;

    if (strlen(token) != length)
        return false;
    for (size_t i = 0; i < length; i++)
        differs |= (unsigned char)(token[i] ^ given[i]);
    return differs == 0;
}

static bool token_in(const char *token, const char *text, const char *name, const char *ends)
{
    const size_t length = strlen(name);

    for (const char *at = strstr(text, name); at != NULL; at = strstr(at + 1, name)) {
        if (same_token(token, at + length, strcspn(at + length, ends)))
            return true;
    }
    return false;
}

/* A web page of another site must not reach this server by a name of its own (DNS rebinding):
 * the header Host must be an address, localhost, or the name given by --host. */
static bool host_allowed(const struct serve *serve, const char *host)
{
    char name[HTTP_HOST_MAX];
    size_t length = strcspn(host, ":");

    if (host[0] == '[') { /* an IPv6 address, and a port */
        length = strspn(host + 1, "0123456789abcdefABCDEF:.");
        return length > 1 && host[1 + length] == ']' && strchr(":", host[2 + length]) != NULL;
    }
    if (length == 0 || length >= sizeof name)
        return false;
    memcpy(name, host, length);
    name[length] = '\0';
    return strspn(name, "0123456789.") == length || strcasecmp(name, "localhost") == 0 ||
           (serve->host != NULL && strcasecmp(name, serve->host) == 0);
}

/* Only the page's own script and style may run: both have a random number of this reply. */
static void give_page(struct http_reply *reply)
{
    char nonce[sizeof NONCE];
    struct gs_err err;
    char *at;

    reply->body = malloc(sizeof page);
    if (reply->body == NULL || make_number(nonce, &err) != 0)
        return;
    memcpy(reply->body, page, sizeof page);
    reply->size = sizeof page;
    for (at = reply->body; (at = memmem(at, (size_t)(reply->body + sizeof page - at), NONCE,
                                        sizeof NONCE - 1)) != NULL;)
        memcpy(at, nonce, sizeof nonce - 1);
    snprintf(reply->headers, sizeof reply->headers,
             SAFE_HEADERS "Content-Security-Policy: default-src 'none'; script-src 'nonce-%s'; "
                          "style-src 'nonce-%s'; connect-src 'self'; frame-ancestors 'none'; "
                          "base-uri 'none'; form-action 'none'\r\n",
             nonce, nonce);
    reply->status = "200 OK";
    reply->type = "text/html; charset=utf-8";
}

static void give_json(struct http_reply *reply, json_t *json)
{
    reply->body = json != NULL ? json_dumps(json, JSON_COMPACT) : NULL;
    json_decref(json);
    if (reply->body == NULL)
        return;
    reply->size = strlen(reply->body);
    reply->status = "200 OK";
    reply->type = "application/json";
}

/* The words of status, top and the page, with their meanings. */
static void give_words(struct http_reply *reply)
{
    json_t *words = json_object();

    for (size_t i = 0; ctl_words[i].word != NULL; i++)
        json_object_set_new(words, ctl_words[i].word, json_string(ctl_words[i].meaning));
    give_json(reply, words);
}

/* A person who opens the bare address learns how to get in; a program gets the same status. */
static void refuse_stranger(const struct http_request *request, struct http_reply *reply)
{
    static const char hint[] =
        "<!DOCTYPE html><meta charset=utf-8><meta name=viewport content='width=device-width'>"
        "<title>gpushare</title><h1>A token is needed</h1><p>Open the address that "
        "<code>gpusharectl serve</code> printed when it started; it ends with "
        "<code>?token=</code> and the token. With <code>--token-file FILE</code>, and as a "
        "service, the token is the first line of that file.</p>\n";

    reply->status = "401 Unauthorized";
    snprintf(reply->headers, sizeof reply->headers,
             "WWW-Authenticate: Bearer realm=\"gpushare\"\r\n");
    if (strcmp(request->path, "/") != 0)
        return;
    reply->body = strdup(hint);
    reply->size = reply->body != NULL ? sizeof hint - 1 : 0;
    reply->type = "text/html; charset=utf-8";
}

static void ask_daemon(struct serve *serve)
{
    const char *remark;

    ctl_answer_deinit(&serve->answer);
    serve->ctl->err = (struct gs_err){0};
    ctl_ask_status(serve->ctl, &serve->answer); /* without a daemon, running is false */
    if (serve->nvml == NULL)
        serve->nvml = nvml_open(NVML_KEPT);
    ctl_gpus_look(serve->nvml, &serve->answer);
    remark = nvml_remark(serve->nvml);
    if (remark != NULL)
        fprintf(stderr, "gpusharectl: %s\n", remark);
    ctl_pods_look(&serve->answer);
    serve->answered = lockd_now();
}

/* Prometheus stamps figures with the time of its request, so figures that are a second old
 * would make rates wrong. */
static const struct ctl_answer *fresh_answer(struct serve *serve)
{
    if (lockd_now() - serve->answered > FRESH_NS)
        ask_daemon(serve);
    return &serve->answer;
}

static void give_metrics(struct serve *serve, struct http_reply *reply)
{
    FILE *out = open_memstream(&reply->body, &reply->size);

    if (out == NULL)
        return;
    ctl_metrics_write(out, fresh_answer(serve));
    if (fclose(out) != 0) {
        free(reply->body);
        reply->body = NULL;
        return;
    }
    reply->status = "200 OK";
    reply->type = "text/plain; version=0.0.4; charset=utf-8";
}

/* Runs in a child process: records the next seconds, for https://ui.perfetto.dev. */
static void stream_trace(void *context, const struct http_request *request, int fd)
{
    struct serve *serve = context;
    const char *wish = strstr(request->query, "seconds=");
    const unsigned long wanted = wish != NULL ? strtoul(wish + 8, NULL, 10) : TRACE_SECONDS;

    if (dup2(fd, STDOUT_FILENO) < 0)
        return;
    fputs("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
          "Content-Disposition: attachment; filename=\"gpushare-trace.json\"\r\n"
          "Connection: close\r\nX-Content-Type-Options: nosniff\r\nCache-Control: "
          "no-store\r\n\r\n",
          stdout);
    serve->ctl->err = (struct gs_err){0};
    ctl_trace_write(serve->ctl, NULL,
                    (wanted < 1     ? 1
                     : wanted > 600 ? 600
                                    : wanted) *
                        1000000000u);
    fflush(stdout);
}

static void give_path(struct serve *serve, const struct http_request *request,
                      struct http_reply *reply)
{
    if (strcmp(request->path, "/") == 0)
        give_page(reply);
    else if (strcmp(request->path, "/status.json") == 0)
        give_json(reply, ctl_json_status(serve->ctl, fresh_answer(serve)));
    else if (strcmp(request->path, "/history.json") == 0)
        give_json(reply, history_json(serve->history));
    else if (strcmp(request->path, "/words.json") == 0)
        give_words(reply);
    else if (strcmp(request->path, "/metrics") == 0)
        give_metrics(serve, reply);
    else if (strcmp(request->path, "/trace.json") != 0)
        reply->status = "404 Not Found";
    else if (!serve->answer.running)
        reply->status = "503 Service Unavailable";
    else if (request->head_only) /* not recorded */
        give_json(reply, json_object());
    else
        reply->stream = stream_trace;
}

static const char *name_cookie(const struct serve *serve, char name[COOKIE_SIZE])
{
    const char *port = strrchr(serve->where, ':');

    snprintf(name, COOKIE_SIZE, COOKIE, port != NULL ? port + 1 : "");
    return name;
}

static void answer_request(void *context, const struct http_request *request,
                           struct http_reply *reply)
{
    struct serve *serve = context;
    const char *bearer = request->authorization;
    char name[COOKIE_SIZE];

    snprintf(reply->headers, sizeof reply->headers,
             SAFE_HEADERS "Content-Security-Policy: default-src 'none'\r\n");
    if (!host_allowed(serve, request->host)) {
        reply->status = "421 Misdirected Request";
        return;
    }
    if (strcmp(request->path, "/") == 0 &&
        token_in(serve->token, request->query, "token=", "&")) {
        /* Redirects from the address with the token to the one without, and sets a cookie, so that
         * the token does not stay in the browser's address bar. */
        reply->status = "303 See Other";
        snprintf(reply->headers, sizeof reply->headers,
                 "Location: /\r\nSet-Cookie: %s%s; Path=/; HttpOnly; SameSite=Strict\r\n"
                 "Referrer-Policy: no-referrer\r\n",
                 name_cookie(serve, name), serve->token);
        return;
    }
    if (!(strncasecmp(bearer, "Bearer ", 7) == 0 &&
          same_token(serve->token, bearer + 7, strcspn(bearer + 7, " \t"))) &&
        !token_in(serve->token, request->cookie, name_cookie(serve, name), "; ")) {
        refuse_stranger(request, reply);
        return;
    }
    give_path(serve, request, reply);
}

static void take_sample(void *context)
{
    struct serve *serve = context;

    ask_daemon(serve);
    history_add(serve->history, (int64_t)time(NULL), &serve->answer);
}

/* Reads the token from the first line of a file that others cannot read; path NULL: makes one. */
static int read_token(struct serve *serve, const char *path)
{
    GS_CLOSE_FD int fd = path != NULL ? open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK) : -1;
    char line[TOKEN_MAX + 2]; /* and one byte more, to detect longer lines */
    struct stat st;
    ssize_t got;
    size_t length;

    if (path == NULL)
        return make_number(serve->token, &serve->ctl->err);
    if (fd < 0 || fstat(fd, &st) != 0)
        return gs_err_errno(&serve->ctl->err, -errno, "--token-file %.200s", path);
    if (!S_ISREG(st.st_mode) || (st.st_mode & 07) != 0)
        return gs_err_set(&serve->ctl->err, -EPERM,
                          "--token-file %.200s: must be a regular file that others cannot read "
                          "(chmod o= on it)",
                          path);
    got = read(fd, line, sizeof line - 1);
    if (got < 0)
        return gs_err_errno(&serve->ctl->err, -errno, "--token-file %.200s", path);
    line[got] = '\0';
    length = strcspn(line, "\r\n");
    for (size_t i = 0; i < length; i++) {
        if (!isalnum((unsigned char)line[i]) && strchr("-._~", line[i]) == NULL)
            length = 0;
    }
    if (length < TOKEN_MIN || length > TOKEN_MAX)
        return gs_err_set(
            &serve->ctl->err, -EINVAL,
            "--token-file %.200s: its first line must have %d to %d letters, digits "
            "or any of -._~",
            path, TOKEN_MIN, TOKEN_MAX);
    memcpy(serve->token, line, length);
    serve->token[length] = '\0';
    return 0;
}

static enum ctl_exit run_server(struct serve *serve, int listener)
{
    const struct http_handler handler = {answer_request, take_sample, TICK_MS, serve};
    int code;

    ctl_catch_interrupts();
    serve->ctl->patience_s = 2; /* a daemon that hangs must not block the page for long */
    take_sample(serve);
    ctl_done(CTL_OK); /* prints the address; serves even if no process reads it */
    code = http_serve(listener, &handler, &ctl_interrupted);
    return code == 0 ? CTL_OK : CTL_FAILED;
}

struct serve_words {
    const char *address, *token_file, *host;
};
_Static_assert(sizeof(struct serve_words) <= CTL_WORDS_SIZE, "the words of a command");

static const struct gs_option serve_options[] = {
    {"listen", "ADDRESS:PORT", GS_OPTION_TEXT, NULL, 0, 0, "address and port to listen on",
     DEFAULT_ADDRESS, 0, offsetof(struct serve_words, address)},
    {"token-file", "FILE", GS_OPTION_TEXT, NULL, 0, 0,
     "use the token in the first line of FILE (default: a new token, which is printed)", NULL,
     0, offsetof(struct serve_words, token_file)},
    {"host", "NAME", GS_OPTION_TEXT, NULL, 0, 0,
     "also answer requests for this host name (behind a proxy)", NULL, 0,
     offsetof(struct serve_words, host)},
    {0},
};

static enum ctl_exit serve_run(struct ctl *ctl, const void *words, int count, char **operands)
{
    const struct serve_words *given = words;
    struct serve serve = {.ctl = ctl, .host = given->host};
    enum ctl_exit exit_code = CTL_FAILED;
    int listener;

    (void)count, (void)operands;
    if (read_token(&serve, given->token_file) != 0) {
        ctl_fail(ctl);
        return CTL_FAILED; /* -ENOENT means a missing file here, not a missing daemon */
    }
    listener = http_listen(given->address != NULL ? given->address : DEFAULT_ADDRESS,
                           serve.where, sizeof serve.where, &ctl->err);
    if (listener == -EINVAL)
        return ctl_usage(ctl, "%s", ctl->err.text);
    if (listener < 0)
        return ctl_fail(ctl);
    serve.history = calloc(1, sizeof *serve.history);
    printf("serving http://%s/%s%s\n", serve.where, given->token_file != NULL ? "" : "?token=",
           given->token_file != NULL ? " with the token of that file" : serve.token);
    if (serve.history != NULL)
        exit_code = run_server(&serve, listener);
    for (size_t i = 0; serve.history != NULL && i < HISTORY_SAMPLES; i++)
        free(serve.history->samples[i].programs);
    free(serve.history);
    nvml_close(serve.nvml);
    ctl_answer_deinit(&serve.answer);
    return exit_code;
}

const struct ctl_command ctl_serve = {
    "serve",   "",   "serve a live page, /metrics and /status.json to a browser or Prometheus",
    serve_run, NULL, serve_options};
