/* The devices of this machine, asked of a process of its own: what a GPU's runtime leaves behind in
 * a process does not survive being forked, and the supervisor forks. */
#ifndef BLASD_MAIN_DEVICE_LIST_H
#define BLASD_MAIN_DEVICE_LIST_H

#define DEVICE_NAME 16

#define DEVICE_TEXT 320
#define DEVICES_UNUSABLE 16

/* Those that cannot be used, each as "cuda:0: why". */
struct unusable_devices {
    char texts[DEVICES_UNUSABLE][DEVICE_TEXT];
    int count;
};

/* Fills in names such as "cpu:0"; returns how many, at least the CPU. Logs what cannot be used. */
int list_devices(char devices[][DEVICE_NAME], int most, struct unusable_devices *unusable);

#endif
