/* The devices of this machine, asked of a process of its own: what a GPU's runtime leaves behind in
 * a process does not survive being forked, and the supervisor forks. */
#ifndef BLASD_MAIN_DEVICE_LIST_H
#define BLASD_MAIN_DEVICE_LIST_H

#define DEVICE_NAME 16

/* Fills in names such as "cpu:0"; returns how many, at least the CPU. */
int list_devices(char devices[][DEVICE_NAME], int most);

#endif
