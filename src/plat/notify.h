#ifndef PLAT_NOTIFY_H
#define PLAT_NOTIFY_H
/* Telling a service manager such as systemd how it goes, by its datagram protocol. */

/* Sends words such as "READY=1" or "STOPPING=1" to a socket: a path, or with @ in front an abstract name. NULL does
 * nothing. What cannot be sent is lost: nobody may depend on being heard. Any thread. */
void notify_send(const char *socket, const char *words);

#endif
