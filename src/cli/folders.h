#ifndef CLI_FOLDERS_H
#define CLI_FOLDERS_H
/* Folders for the files that the command line keeps. */

/* Makes every folder on the way to the last part of `path`, for this user only. What cannot be made shows when the file
 * itself is opened. */
void folders_make(const char *path);

#endif
