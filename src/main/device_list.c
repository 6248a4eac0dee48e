/* Runs `blasd devices --ids` and reads what it says. */
#include "main/device_list.h"

#include "base/log.h"
#include "main/ask_self.h"

#include <stdio.h>
#include <string.h>

#define TEXT_MOST 8192
#define PATIENCE_MS 60000 /* drivers of many GPUs take their time to wake up */

static int split(char *text, char devices[][DEVICE_NAME], int most,
                 struct unusable_devices *unusable) {
    int count = 0;
    for (char *line = text, *end; count < most && (end = strchr(line, '\n')) != NULL;
         line = end + 1) {
        *end = '\0';
        if (strncmp(line, "# ", 2) == 0) {
            blasd_log(BLASD_LOG_WARN, "no worker for %s", line + 2);
            if (unusable->count < DEVICES_UNUSABLE)
                snprintf(unusable->texts[unusable->count++], DEVICE_TEXT, "%s", line + 2);
        } else if (end > line && end - line < DEVICE_NAME)
            memcpy(devices[count++], line, (size_t)(end - line) + 1);
    }
    return count;
}

int list_devices(char devices[][DEVICE_NAME], int most, struct unusable_devices *unusable) {
    static char program[] = "blasd", command[] = "devices", option[] = "--ids";
    char *const argv[] = {program, command, option, NULL};
    char text[TEXT_MOST];
    int count;
    ask_self(argv, NULL, PATIENCE_MS, text, sizeof text);
    count = split(text, devices, most, unusable);
    if (count > 0) return count;
    blasd_log(BLASD_LOG_WARN, "cannot list the devices; using cpu:0 alone");
    snprintf(devices[0], DEVICE_NAME, "cpu:0");
    return 1;
}
