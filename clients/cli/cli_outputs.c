/* Outputs as files, and what is told of a job that has ended. */
#include "clients/cli/cli.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

bool cli_is_readable(const struct cli *cli, const char *path) {
    struct stat info;
    int reason = stat(path, &info) != 0 ? errno : S_ISDIR(info.st_mode) ? EISDIR : 0;
    if (reason == 0 && access(path, R_OK) != 0) reason = errno;
    if (reason == 0) return true;
    cli_say(cli, "the file %s cannot be read: %s", path, strerror(reason));
    return false;
}

/* Whether a file can be written, as far as that shows before the job has run. */
static bool is_writable(const struct cli *cli, const char *path) {
    struct stat info;
    const char *slash = strrchr(path, '/');
    char *folder = slash == NULL ? strdup(".") : strndup(path, (size_t)(slash - path) + 1);
    int reason = 0;
    if (stat(path, &info) == 0)
        reason = S_ISDIR(info.st_mode) ? EISDIR : access(path, W_OK) != 0 ? errno : 0;
    else if (errno != ENOENT || (folder != NULL && access(folder, W_OK | X_OK) != 0))
        reason = errno;
    free(folder);
    if (reason == 0) return true;
    cli_say(cli, "the file %s cannot be written: %s", path, strerror(reason));
    return false;
}

bool cli_take_save(const struct cli *cli, struct cli_saves *saves, const char *argument) {
    const char *equals = strchr(argument, '='), *path = equals == NULL ? argument : equals + 1;
    size_t len = equals == NULL ? 0 : (size_t)(equals - argument);
    if (saves->count == CLI_MOST_SAVES) {
        cli_say(cli, "more than %d outputs", CLI_MOST_SAVES);
        return false;
    }
    if (*path == '\0' || len >= sizeof saves->list->output || equals == argument) {
        cli_say(cli, "'%s' is not [output=]file", argument);
        return false;
    }
    saves->list[saves->count].path = path;
    memcpy(saves->list[saves->count].output, argument, len);
    saves->list[saves->count].output[len] = '\0';
    saves->count++;
    return is_writable(cli, path);
}

int cli_save_outputs(const struct cli_saves *saves, const struct blasd_reply *reply,
                     struct blasd_problem *problem) {
    const struct blasd_array *first = blasd_reply_array_at(reply, 0);
    for (int i = 0; i < saves->count; i++) {
        const char *output = saves->list[i].output;
        const char *name = output[0] != '\0' || first == NULL ? output : first->name;
        if (blasd_reply_save(reply, name, saves->list[i].path, problem) != 0) return -1;
    }
    return 0;
}

void cli_report(const struct cli *cli, const struct cli_saves *saves, bool quiet,
                const struct blasd_reply *reply) {
    if (cli->json)
        puts(blasd_reply_document(reply));
    else {
        json_t *job = cli_document(reply);
        for (int i = 0; saves->count == 0 && i < blasd_reply_array_count(reply); i++)
            cli_print_array(blasd_reply_array_at(reply, i));
        cli_print_kept(job);
        cli_print_digests(job);
        json_decref(job);
    }
    if (!quiet) cli_print_timing(reply);
}
