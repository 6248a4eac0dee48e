/* A thread that looks once a second. What it sees becomes SIGTERM, so that there is one way to end.
 *
 * For addresses of a cloud's metadata: the headers that Google's and Azure's ask for are always
 * sent, and where Amazon's wants a token it is fetched. No proxy, no redirects, and of the answer
 * nothing is logged. */
#include "main/notice.h"

#include "base/buf.h"
#include "base/log.h"

#include <ctype.h>
#include <curl/curl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define EVERY_S 1
#define ANSWER_MOST ((size_t)65536)
#define TOKEN_HEADER "X-aws-ec2-metadata-token"
#define TOKEN_LIFE "21600"
#define TIMEOUT_MS 3000L

struct notice {
    struct notice_options options;
    pthread_t told; /* the thread that is to end */
    struct blasd_buf answer;
    struct curl_slist *headers; /* owned */
    bool unavailable;           /* the address did not answer the last time, which was said */
};

int notice_take(struct notice_options *options, int option, const char *value) {
    switch (option) {
    case OPTION_NOTICE_FILE: options->file = value; return 0;
    case OPTION_NOTICE_URL: options->url = value; return 0;
    case OPTION_NOTICE_TEXT: options->text = value; return 0;
    default: return 1;
    }
}

int notice_check(const struct notice_options *options) {
    const char *url = options->url;
    if (url != NULL && strncmp(url, "http://", 7) != 0 && strncmp(url, "https://", 8) != 0) {
        fputs("blasd: --notice-url is no address such as http://169.254.169.254/…\n", stderr);
        return -1;
    }
    if (options->text != NULL && url == NULL) {
        fputs("blasd: --notice-text is for what --notice-url answers\n", stderr);
        return -1;
    }
    return 0;
}

static size_t on_body(char *bytes, size_t size, size_t count, void *arg) {
    struct notice *notice = arg;
    return blasd_buf_add(&notice->answer, bytes, size * count) == 0 ? size * count : 0;
}

/* The status of the answer, which is then in notice->answer; 0: there was none. */
static long ask(struct notice *notice, const char *method, const char *url,
                struct curl_slist *headers) {
    CURL *curl = curl_easy_init();
    long status = 0;
    blasd_buf_reset(&notice->answer);
    if (curl == NULL) return 0;
    curl_easy_setopt(curl, CURLOPT_URL, url);
#if LIBCURL_VERSION_NUM >= 0x075500
    curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
#else
    curl_easy_setopt(curl, CURLOPT_PROTOCOLS, (long)(CURLPROTO_HTTP | CURLPROTO_HTTPS));
#endif
    curl_easy_setopt(curl, CURLOPT_CUSTOMREQUEST, method);
    curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
    curl_easy_setopt(curl, CURLOPT_PROXY, "");
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, TIMEOUT_MS);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, notice);
    if (curl_easy_perform(curl) == CURLE_OK)
        curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
    curl_easy_cleanup(curl);
    return status;
}

static void set_headers(struct notice *notice, const char *token) {
    char line[1024];
    bool visible = token != NULL;
    for (const char *at = token; visible && *at != '\0'; at++)
        visible = isgraph((unsigned char)*at) != 0; /* else it could end the line */
    curl_slist_free_all(notice->headers);
    notice->headers = curl_slist_append(NULL, "Metadata-Flavor: Google");
    notice->headers = curl_slist_append(notice->headers, "Metadata: true");
    if (!visible) return;
    snprintf(line, sizeof line, TOKEN_HEADER ": %.900s", token);
    notice->headers = curl_slist_append(notice->headers, line);
}

/* Amazon's way: a token from the same host goes with every question. */
static void fetch_token(struct notice *notice) {
    const char *path = strstr(notice->options.url, "://") + 3;
    struct curl_slist *life = curl_slist_append(NULL, TOKEN_HEADER "-ttl-seconds: " TOKEN_LIFE);
    char url[1024];
    int host = (int)(path - notice->options.url + (ptrdiff_t)strcspn(path, "/?#"));
    if (snprintf(url, sizeof url, "%.*s/latest/api/token", host, notice->options.url) <
            (int)sizeof url &&
        ask(notice, "PUT", url, life) == 200 && blasd_buf_add(&notice->answer, "", 1) == 0)
        set_headers(notice, notice->answer.data);
    curl_slist_free_all(life);
}

static bool url_says(struct notice *notice) {
    const char *text = notice->options.text;
    long status = ask(notice, "GET", notice->options.url, notice->headers);
    if (status == 401) {
        fetch_token(notice);
        status = ask(notice, "GET", notice->options.url, notice->headers);
    }
    if ((status == 0) != notice->unavailable)
        blasd_log(BLASD_LOG_WARN, status == 0 ? "the address of --notice-url does not answer"
                                              : "the address of --notice-url answers again");
    notice->unavailable = status == 0;
    return status == 200 && (text == NULL || (notice->answer.len > 0 &&
                                              memmem(notice->answer.data, notice->answer.len, text,
                                                     strlen(text)) != NULL));
}

static bool file_says(const struct notice *notice) {
    struct stat info;
    return stat(notice->options.file, &info) == 0;
}

static void *look(void *arg) {
    struct notice *notice = arg;
    const struct notice_options *options = &notice->options;
    while (!(options->file != NULL && file_says(notice)) &&
           !(options->url != NULL && url_says(notice)))
        sleep(EVERY_S);
    blasd_log(BLASD_LOG_WARN, "word came that this machine goes: ending");
    pthread_kill(notice->told, SIGTERM);
    curl_slist_free_all(notice->headers);
    blasd_buf_release(&notice->answer);
    free(notice);
    return NULL;
}

int notice_start(const struct notice_options *options, struct blasd_err *err) {
    struct notice *notice;
    pthread_t thread;
    if (options->file == NULL && options->url == NULL) return 0;
    notice = calloc(1, sizeof *notice);
    if (notice == NULL)
        return blasd_fail(err, BLASD_E_out_of_memory, "", "no memory to look for --notice-…");
    notice->options = *options;
    notice->told = pthread_self();
    blasd_buf_init(&notice->answer, ANSWER_MOST);
    if (options->url != NULL) curl_global_init(CURL_GLOBAL_DEFAULT);
    set_headers(notice, NULL);
    if (pthread_create(&thread, NULL, look, notice) != 0) {
        curl_slist_free_all(notice->headers);
        free(notice);
        return blasd_fail(err, BLASD_E_internal_error, "",
                          "cannot start the thread for --notice-…");
    }
    pthread_detach(thread);
    return 0;
}
