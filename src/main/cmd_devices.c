/* `blasd devices`: what the backends find here, and how fast it is. */
#include "base/log.h"
#include "clients/cli/cli.h"
#include "main/blas_start.h"
#include "main/commands.h"
#include "wire/device_json.h"
#include "worker/worker.h"

#include <getopt.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char usage[] =
    "usage: blasd devices [--json] [--ids] [--blas PATH] | --url URL\n"
    "\n"
    "Lists the devices of this machine with their measured hardware rates, in about half a "
    "second.\n"
    "  --json                 print JSON\n"
    "  --ids                  print names only, without measuring; unusable ones after #\n"
    "  --blas PATH            compute with this library; see docs/devices.md [BLASD_BLAS]\n"
    "  --url URL              list the devices of a running service instead; options:\n"
    "                         `blasd devices --url URL --help`\n";

enum form { TABLE, JSON, IDS };

static void print_row(const struct blasd_device_info *info) {
    printf("%-8s %-40s %6s %10s %10s %12s %12s %9s\n", "device", "name", "units", "GB", "GB free",
           "f64 GFLOP/s", "f32 GFLOP/s", "copy GB/s");
    printf("%-8s %-40s %6d %10.1f %10.1f %12.1f %12.1f %9.1f\n", info->id, info->name, info->units,
           (double)info->memory_bytes / 1e9, (double)info->memory_free_bytes / 1e9,
           info->gflops_float64, info->gflops_float32, info->copy_gbytes_s);
    if (info->blas_library[0] != '\0')
        printf("%s: computes with %s%s%s (%s)\n", info->id, info->blas_library,
               info->blas_core[0] == '\0' ? "" : ", kernels for ", info->blas_core,
               info->blas_chosen_by);
}

/* 0, or -1 after a message. */
static int show_device(const struct blasd_backend *backend, int ordinal, enum form form,
                       json_t *list) {
    struct blasd_device *device = NULL;
    struct blasd_device_info info = {.id = ""};
    struct blasd_err err = {0};
    if (form == IDS) {
        printf("%s:%d\n", backend->name, ordinal);
        return 0;
    }
    if (backend->device_open(ordinal, &device, &err) != 0 ||
        backend->device_info(device, true, &info, &err) != 0) {
        fprintf(stderr, "blasd devices: %s:%d: %s\n", backend->name, ordinal, err.detail);
        if (device != NULL) backend->device_close(device);
        return -1;
    }
    backend->device_close(device);
    if (form == TABLE) {
        print_row(&info);
    } else {
        json_array_append_new(list, blasd_device_json(&info, NULL));
    }
    return 0;
}

/* A device, or a whole backend, that is no use as it is. */
static void show_unusable(const char *name, const struct blasd_err *why, enum form form,
                          json_t *list) {
    if (form == IDS)
        printf("# %s: %s\n", name, why->detail);
    else if (form == TABLE)
        printf("%s cannot be used: %s\n\n", name, why->detail);
    else
        json_array_append_new(list,
                              json_pack("{s:s, s:s}", "device", name, "unusable", why->detail));
}

static int show_backend(const struct blasd_backend *backend, enum form form, json_t *list) {
    struct blasd_err err = {0};
    int count = backend->device_count(&err), status = BLASD_EXIT_OK;
    if (count < 0) show_unusable(backend->name, &err, form, list);
    for (int i = 0; i < count; i++) {
        char name[16];
        snprintf(name, sizeof name, "%s:%d", backend->name, i);
        if (backend->device_check != NULL && backend->device_check(i, &err) != 0)
            show_unusable(name, &err, form, list);
        else if (show_device(backend, i, form, list) != 0)
            status = BLASD_EXIT_FAILED;
    }
    return status;
}

static int show(enum form form) {
    const struct blasd_backend *backends[BLASD_BACKENDS_MAX];
    struct blasd_err why = {0};
    int count = blasd_backends(backends, &why), status = BLASD_EXIT_OK;
    json_t *list = json_array();
    if (why.code != BLASD_OK) show_unusable("cuda", &why, form, list);
    for (int b = 0; b < count; b++)
        if (show_backend(backends[b], form, list) != BLASD_EXIT_OK) status = BLASD_EXIT_FAILED;
    if (form == JSON) {
        json_dumpf(list, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(6));
        putchar('\n');
    }
    json_decref(list);
    return status;
}

static bool names_a_service(int argc, char **argv) {
    for (int i = 1; i < argc; i++)
        if (strncmp(argv[i], "-u", 2) == 0 || strncmp(argv[i], "--u", 3) == 0) return true;
    return false;
}

int blasd_cmd_devices(int argc, char **argv) {
    static const struct option options[] = {{"json", no_argument, NULL, 'j'},
                                            {"ids", no_argument, NULL, 'i'},
                                            {"blas", required_argument, NULL, 'b'},
                                            {"help", no_argument, NULL, 'h'},
                                            {NULL, 0, NULL, 0}};
    struct blas_start start = {.path = getenv(BLASD_BLAS_PATH), .measure = true};
    enum form form = TABLE;
    int option, status;
    if (names_a_service(argc, argv)) return blasd_cli_devices(argc, argv);
    while ((option = getopt_long(argc, argv, "h", options, NULL)) != -1) switch (option) {
        case 'j': form = JSON; break;
        case 'i': form = IDS; break;
        case 'b': start.path = optarg; break;
        case 'h': fputs(usage, stdout); return BLASD_EXIT_OK;
        default: fputs(usage, stderr); return BLASD_EXIT_USAGE;
        }
    if (optind < argc) {
        fprintf(stderr, "blasd devices: '%s' is not an option\n", argv[optind]);
        return BLASD_EXIT_USAGE;
    }
    if (form != IDS) {
        blasd_log_setup("blasd devices", BLASD_LOG_WARN);
        status = blas_start(&start, argv);
        if (status != 0) return status;
    }
    return show(form);
}
