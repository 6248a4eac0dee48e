/* `blasd keys`: makes, lists and revokes the keys of a file. Read next: ../auth/key.h. */
#include "base/clock.h"
#include "main/commands.h"
#include "main/key_options.h"
#include "main/keys_file.h"
#include "main/options.h"

#include <stdio.h>
#include <string.h>

static const char usage[] =
    "usage: blasd keys add NAME [options]\n"
    "       blasd keys list [--file FILE]\n"
    "       blasd keys revoke NAME [--file FILE]\n"
    "\n"
    "Manages the key file of `blasd up --keys FILE` and `blasd api --keys FILE`. add prints the "
    "new key\n"
    "once; the file stores its hash. A running service applies changes within two seconds.\n"
    "  --file FILE            use this file ($BLASD_KEYS, else /etc/blasd/keys.json for\n"
    "                         root, else $XDG_CONFIG_HOME/blasd/keys.json or\n"
    "                         ~/.config/blasd/keys.json)\n"
    "and for add:\n";
static const char notes[] = "Exit status: 0 success, 1 failure, 2 invalid options.\n";

/* What the command line asks for. */
struct request {
    const char *verb, *name, *file;
    struct blasd_auth_key key;
    bool limited; /* an option of `add` was given */
};

static int complain(const struct blasd_err *err) {
    fprintf(stderr, "blasd keys: %s\n", err->detail);
    return BLASD_EXIT_FAILED;
}

static int add(struct request *request) {
    struct blasd_auth_key *key = &request->key;
    char text[BLASD_KEY_TEXT] = "";
    struct blasd_err err = {0};
    int len = snprintf(key->caller.name, sizeof key->caller.name, "%s", request->name);
    if (!blasd_key_name_valid(request->name, BLASD_TENANT_MAX) || len >= BLASD_TENANT_MAX) {
        fputs("blasd keys: NAME is up to 31 letters, digits, '.', '_' and '-', and not anonymous\n",
              stderr);
        return option_wrong("keys");
    }
    if (key->caller.principal.tenant[0] == '\0')
        memcpy(key->caller.principal.tenant, key->caller.name, BLASD_TENANT_MAX);
    if (keys_file_add(request->file, key, text, &err) != 0) return complain(&err);
    if (text[0] == '\0') {
        fprintf(stderr, "certificate %s: key %s\n", key->certificate, request->name);
        return BLASD_EXIT_OK;
    }
    if (puts(text) >= 0 && fflush(stdout) == 0) return BLASD_EXIT_OK;
    fprintf(stderr, "blasd keys: the key could not be printed: revoke %s, and make another\n",
            request->name);
    return BLASD_EXIT_FAILED;
}

static int revoke(const struct request *request) {
    struct blasd_err err = {0};
    return keys_file_revoke(request->file, request->name, &err) == 0 ? BLASD_EXIT_OK
                                                                     : complain(&err);
}

static void print_ops(uint32_t ops) {
    const char *comma = "";
    if (ops == BLASD_IDENTITY_ALL_OPS) fputs("*", stdout);
    for (int i = 0; ops != BLASD_IDENTITY_ALL_OPS && blasd_ops[i] != NULL; i++) {
        if ((ops >> i & 1) == 0) continue;
        printf("%s%s", comma, blasd_ops[i]->name);
        comma = ",";
    }
}

static void print_limits(const struct blasd_identity *caller) {
    const struct blasd_principal *principal = &caller->principal;
    const struct {
        const char *name;
        uint64_t value;
    } limits[] = {{"jobs", principal->quotas.jobs},
                  {"bytes", principal->quotas.bytes},
                  {"stored-bytes", principal->quotas.stored_bytes},
                  {"jobs-per-second", caller->jobs_per_s},
                  {"job-seconds", caller->job_s},
                  {"weight", principal->weight > 1 ? principal->weight : 0}};
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++)
        if (limits[i].value != 0)
            printf(" %s=%llu", limits[i].name, (unsigned long long)limits[i].value);
    if (caller->ceiling != BLASD_PRIORITY_HIGH)
        printf(" priority=%s", blasd_priority_names[caller->ceiling]);
}

static void print_key(const struct blasd_auth_key *key) {
    const struct blasd_identity *caller = &key->caller;
    char when[BLASD_TIME_TEXT] = "-", shown[BLASD_CERTIFICATE + 8];
    bool expired = key->expires_s != 0 && key->expires_s <= blasd_clock_wall_us() / 1000000;
    if (key->expires_s != 0) blasd_clock_text(key->expires_s * 1000000, when);
    if (key->id[0] != '\0')
        snprintf(shown, sizeof shown, "blasd_%s", key->id);
    else
        snprintf(shown, sizeof shown, "CN=%s", key->certificate);
    printf("%-20s %-18s %-20s %-8s %.10s%-8s ", caller->name, shown, caller->principal.tenant,
           blasd_role_names[caller->role], when, expired ? " expired" : "");
    print_ops(caller->ops);
    print_limits(caller);
    putchar('\n');
}

static int list(const struct request *request) {
    struct blasd_keyring ring = {0};
    struct blasd_err err = {0};
    bool missing;
    if (blasd_keyring_load(request->file, &ring, &missing, &err) != 0) return complain(&err);
    printf("%-20s %-18s %-20s %-8s %-18s %s\n", "NAME", "KEY", "TENANT", "ROLE", "EXPIRES",
           "OPS LIMITS");
    for (size_t i = 0; i < ring.count; i++) print_key(&ring.keys[i]);
    blasd_keyring_release(&ring);
    return BLASD_EXIT_OK;
}

/* 0, an exit status, or -1 after help was printed. */
static int parse(struct request *request, int argc, char **argv) {
    struct blasd_err err = {0};
    int option;
    while ((option = getopt_long(argc, argv, "h", key_options, NULL)) != -1) {
        if (option == 'h') {
            printf("%s%s%s", usage, key_options_usage, notes);
            return -1;
        }
        if (option == '?') return option_wrong("keys");
        if (option == 'f') {
            request->file = optarg;
            continue;
        }
        request->limited = true;
        if (key_option_take(&request->key, option, optarg, &err) == 0) continue;
        fprintf(stderr, "blasd keys: %s\n", err.detail);
        return option_wrong("keys");
    }
    if (optind < argc) request->verb = argv[optind++];
    if (optind < argc) request->name = argv[optind++];
    return optind < argc ? option_wrong("keys") : 0;
}

int blasd_cmd_keys(int argc, char **argv) {
    struct request request = {.verb = ""};
    char path[KEYS_FILE_PATH];
    struct blasd_err err = {0};
    bool adds, revokes;
    int status;
    blasd_identity_init(&request.key.caller, BLASD_ROLE_USER);
    status = parse(&request, argc, argv);
    if (status != 0) return status < 0 ? BLASD_EXIT_OK : status;
    adds = strcmp(request.verb, "add") == 0;
    revokes = strcmp(request.verb, "revoke") == 0;
    if ((adds || revokes) != (request.name != NULL) || (!adds && request.limited) ||
        (!adds && !revokes && strcmp(request.verb, "list") != 0)) {
        fputs("blasd keys: say add NAME, list or revoke NAME\n", stderr);
        return option_wrong("keys");
    }
    if (request.file == NULL && keys_file_default(path, &err) != 0) return complain(&err);
    if (request.file == NULL) request.file = path;
    return adds ? add(&request) : revokes ? revoke(&request) : list(&request);
}
