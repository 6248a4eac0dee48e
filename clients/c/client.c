/* A client: what it knows of the service, and the handles that it lends to one request at a time.
 * Read next: client_exchange.c, one request; client_errand.c, a job. */
#include "clients/c/internal.h"

#include <ctype.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define DEFAULT_URL "http://127.0.0.1:8080"
#define SILENCE_S 60.0
#define MOST_RETRIES 100

#define TEXT_OF(number) TEXT_OF_VALUE(number)
#define TEXT_OF_VALUE(number) #number

const char *blasd_library_version(void) {
    return TEXT_OF(BLASD_VERSION_MAJOR) "." TEXT_OF(BLASD_VERSION_MINOR) "." TEXT_OF(
        BLASD_VERSION_PATCH);
}

double blasd_now_seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* --- handles */

static pid_t maker_of(CURL *curl) {
    char *pid = NULL;
    curl_easy_getinfo(curl, CURLINFO_PRIVATE, &pid);
    return (pid_t)(intptr_t)pid;
}

/* NULL where none idles. */
static CURL *take_idle(struct blasd_client *client) {
    for (int i = 0; i < BLASD_IDLE_HANDLES; i++) {
        CURL *curl = atomic_load(&client->idle[i]);
        if (curl != NULL) curl = atomic_exchange(&client->idle[i], NULL);
        /* one that a fork brought along is left as it is, for to close a connection of TLS would
         * say so to the service */
        if (curl != NULL && maker_of(curl) == getpid()) return curl;
    }
    return NULL;
}

CURL *blasd_handle_take(struct blasd_client *client) {
    CURL *curl = take_idle(client);
    return curl != NULL ? curl : curl_easy_init();
}

void blasd_handle_give(struct blasd_client *client, CURL *curl) {
    curl_easy_setopt(curl, CURLOPT_PRIVATE, (void *)(intptr_t)getpid());
    for (int i = 0; i < BLASD_IDLE_HANDLES; i++) {
        CURL *none = NULL;
        if (atomic_compare_exchange_strong(&client->idle[i], &none, curl)) return;
    }
    curl_easy_cleanup(curl);
}

/* --- making one */

static void global_init(void) {
    curl_global_init(CURL_GLOBAL_DEFAULT);
    /* jansson would draw it at the first request, and a child that another thread forks meanwhile
     * would wait for it for ever */
    json_object_seed(0);
}

static char *host_of(char *url) {
    char *scheme = strstr(url, "://");
    return scheme == NULL ? url : scheme + 3;
}

bool blasd_hide_user(char *url) {
    char *host = host_of(url), *at = NULL;
    size_t len = strcspn(host, "/?#");
    for (size_t i = 0; i < len; i++)
        if (host[i] == '@') at = host + i;
    if (at != NULL) memmove(host, at + 1, strlen(at + 1) + 1);
    return at != NULL;
}

static bool is_loopback(char *url) {
    const char *host = host_of(url);
    size_t len = host[0] == '[' ? strcspn(host, "]") + 1 : strcspn(host, ":/?#");
    return (len == 9 && strncasecmp(host, "localhost", len) == 0) ||
           (len == 5 && strncmp(host, "[::1]", len) == 0) || strncmp(host, "127.", 4) == 0;
}

/* Whether it is http or https, with a host and no query. */
static bool is_service_url(const char *url) {
    const char *host = host_of((char *)(uintptr_t)url);
    if (strncasecmp(url, "http://", 7) != 0 && strncasecmp(url, "https://", 8) != 0) return false;
    for (const char *at = url; *at != '\0'; at++)
        if (*at == '?' || *at == '#' || *at == ' ' || iscntrl((unsigned char)*at)) return false;
    return *host != '\0' && *host != '/' && *host != ':';
}

/* False where memory has run out. What has no scheme is http. */
static bool take_url(struct blasd_client *client, const char *url) {
    const char *scheme = strstr(url, "://") == NULL ? "http://" : "";
    size_t len;
    if (strncmp(url, "unix:", 5) == 0) {
        client->shown = strdup(url);
        client->socket_path = strdup(url + 5);
        client->base = strdup("http://localhost");
        client->is_loopback = true;
        client->bad_url = url[5] == '\0';
        return client->shown != NULL && client->socket_path != NULL && client->base != NULL;
    }
    if (asprintf(&client->base, "%s%s", scheme, url) < 0) client->base = NULL;
    client->shown = client->base == NULL ? NULL : strdup(client->base);
    if (client->shown == NULL) return false;
    len = strlen(client->base);
    while (len > 0 && client->base[len - 1] == '/') client->base[--len] = '\0';
    client->has_user = blasd_hide_user(client->shown);
    client->bad_url = !is_service_url(client->shown);
    client->is_loopback = is_loopback(client->shown);
    return true;
}

struct blasd_client *blasd_client_new(const char *url) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    struct blasd_client *client = calloc(1, sizeof *client);
    const char *key = getenv("BLASD_API_KEY");
    struct blasd_problem problem;
    if (url == NULL) url = getenv("BLASD_URL");
    if (url == NULL || *url == '\0') url = DEFAULT_URL;
    pthread_once(&once, global_init);
    if (client == NULL) return NULL;
    client->verify = true;
    client->silence_s = SILENCE_S;
    if (!take_url(client, url)) {
        blasd_client_free(client);
        return NULL;
    }
    client->bad_key =
        key != NULL && *key != '\0' && blasd_client_set_api_key(client, key, &problem) != 0;
    return client;
}

void blasd_client_free(struct blasd_client *client) {
    struct blasd_share *share, *older;
    CURL *curl;
    if (client == NULL) return;
    for (share = atomic_load(&client->shares); share != NULL; share = older) {
        older = share->older;
        free(share);
    }
    while ((curl = take_idle(client)) != NULL) curl_easy_cleanup(curl);
    curl_slist_free_all(client->key_header);
    curl_slist_free_all(client->headers);
    free(client->base);
    free(client->shown);
    free(client->socket_path);
    free(client->ca_file);
    free(client->cert_file);
    free(client->key_file);
    free(client);
}

/* --- setting it up */

static int out_of_memory(struct blasd_problem *problem) {
    return blasd_problem_set(problem, "out_of_memory", "no memory for the client");
}

/* What a header may say: no control characters, above all no end of a line. */
static bool is_header_text(const char *text) {
    for (; *text != '\0'; text++)
        if (iscntrl((unsigned char)*text) && *text != '\t') return false;
    return true;
}

static bool is_header_name(const char *name) {
    if (*name == '\0') return false;
    for (; *name != '\0'; name++)
        if (!isalnum((unsigned char)*name) && strchr("!#$%&'*+-.^_`|~", *name) == NULL)
            return false;
    return true;
}

/* Adds "NAME: VALUE" to a list. */
static int add_header(struct curl_slist **list, const char *name, const char *value,
                      struct blasd_problem *problem) {
    struct curl_slist *longer;
    char *line;
    if (asprintf(&line, "%s: %s", name, value) < 0) return out_of_memory(problem);
    longer = curl_slist_append(*list, line);
    free(line);
    if (longer == NULL) return out_of_memory(problem);
    *list = longer;
    return 0;
}

int blasd_client_set_api_key(struct blasd_client *client, const char *key,
                             struct blasd_problem *problem) {
    struct curl_slist *header = NULL;
    char *value;
    int code;
    if (key != NULL && (*key == '\0' || !is_header_text(key)))
        return blasd_problem_set(problem, "invalid_request",
                                 "the key is empty, or has control characters in it");
    if (key != NULL) {
        if (asprintf(&value, "Bearer %s", key) < 0) return out_of_memory(problem);
        code = add_header(&header, "Authorization", value, problem);
        free(value);
        if (code != 0) return code;
    }
    curl_slist_free_all(client->key_header);
    client->key_header = header;
    client->bad_key = false;
    return 0;
}

/* `*to` becomes a copy of `text`, which may be NULL. */
static bool take_text(char **to, const char *text) {
    char *copy = text == NULL ? NULL : strdup(text);
    if (text != NULL && copy == NULL) return false;
    free(*to);
    *to = copy;
    return true;
}

static int check_readable(const char *path, struct blasd_problem *problem) {
    if (path == NULL || access(path, R_OK) == 0) return 0;
    return blasd_problem_set(problem, "file_not_readable", "the file %s cannot be read: %m", path);
}

int blasd_client_set_tls(struct blasd_client *client, const char *ca_file, const char *cert_file,
                         const char *key_file, bool verify, struct blasd_problem *problem) {
    if (check_readable(ca_file, problem) != 0 || check_readable(cert_file, problem) != 0 ||
        check_readable(key_file, problem) != 0)
        return -1;
    if (key_file != NULL && cert_file == NULL)
        return blasd_problem_set(problem, "invalid_request", "a key without its certificate");
    if (!take_text(&client->ca_file, ca_file) || !take_text(&client->cert_file, cert_file) ||
        !take_text(&client->key_file, key_file))
        return out_of_memory(problem);
    client->verify = verify;
    return 0;
}

int blasd_client_set_header(struct blasd_client *client, const char *name, const char *value,
                            struct blasd_problem *problem) {
    if (name == NULL || value == NULL || !is_header_name(name) || !is_header_text(value))
        return blasd_problem_set(problem, "invalid_request",
                                 "a header has no name, or characters that no header has");
    return add_header(&client->headers, name, value, problem);
}

int blasd_client_set_retries(struct blasd_client *client, int retries,
                             struct blasd_problem *problem) {
    if (retries < 0 || retries > MOST_RETRIES)
        return blasd_problem_set(problem, "invalid_request", "%d retries; they are 0 to %d",
                                 retries, MOST_RETRIES);
    client->retries = retries;
    return 0;
}

int blasd_client_set_silence(struct blasd_client *client, double seconds,
                             struct blasd_problem *problem) {
    if (!(seconds >= 1 && seconds <= 86400))
        return blasd_problem_set(problem, "invalid_request",
                                 "a silence of %g seconds; it is 1 to 86400", seconds);
    client->silence_s = seconds;
    return 0;
}

int blasd_client_check(const struct blasd_client *client, struct blasd_problem *problem) {
    if (client->bad_url)
        return blasd_problem_set(
            problem, "invalid_url",
            "%s is not a URL like http://HOST:PORT, https://HOST or unix:/PATH", client->shown);
    if (!client->bad_key) return 0;
    return blasd_problem_set(
        problem, "invalid_request",
        "BLASD_API_KEY has control characters in it, such as an end of a line");
}

const struct blasd_share *blasd_client_sharing(struct blasd_client *client) {
    return atomic_load(&client->sharing) ? atomic_load(&client->shares) : NULL;
}

const char *blasd_client_directory(struct blasd_client *client) {
    const struct blasd_share *share = blasd_client_sharing(client);
    return share == NULL ? NULL : share->directory;
}

int blasd_client_share_in(struct blasd_client *client, const char *directory, const char *prefix) {
    struct blasd_share *share = atomic_load(&client->shares);
    size_t size = strlen(directory) + 1;
    if (share == NULL || strcmp(share->directory, directory) != 0 ||
        strcmp(share->prefix, prefix) != 0) {
        share = calloc(1, sizeof *share + size);
        if (share == NULL) return -1;
        snprintf(share->prefix, sizeof share->prefix, "%s", prefix);
        memcpy(share->directory, directory, size);
        share->older = atomic_load(&client->shares);
        while (!atomic_compare_exchange_weak(&client->shares, &share->older, share)) continue;
    }
    atomic_store(&client->sharing, true);
    return 0;
}
