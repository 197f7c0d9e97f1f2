#include "memory/cgroup.h"

#include <string.h>
#include <sys/stat.h>

#define LINE_BYTES 4096

bool fb_line_read(FILE *file, char *line, size_t size)
{
    size_t length;
    int next;

    if (!fgets(line, (int)size, file))
        return false;
    length = strlen(line);
    if (length && line[length - 1] == '\n') {
        line[length - 1] = '\0';
        return true;
    }
    do /* the line was longer, or the last one had no newline */
        next = fgetc(file);
    while (next != EOF && next != '\n');
    return true;
}

static FILE *open_under(const char *root, const char *path)
{
    char whole[FB_CGROUP_PATH_BYTES];
    int length = snprintf(whole, sizeof(whole), "%s%s", root, path);

    return length > 0 && (size_t)length < sizeof(whole) ? fopen(whole, "re") : NULL;
}

/* Is `word` one of the comma-separated `list`? */
static bool list_has(const char *list, const char *word)
{
    size_t length = strlen(word);

    while (*list) {
        size_t item = strcspn(list, ",");

        if (item == length && !memcmp(list, word, length))
            return true;
        list += item;
        list += *list == ',';
    }
    return false;
}

/* The path in a line "4:memory,cpu:/path" of /proc/self/cgroup if it is the one wanted. */
static const char *line_path(char *line, const char *controller, bool v2)
{
    char *controllers = strchr(line, ':'), *path;

    if (!controllers)
        return NULL;
    *controllers++ = '\0';
    path = strchr(controllers, ':');
    if (!path)
        return NULL;
    *path++ = '\0';
    if (v2)
        return !strcmp(line, "0") && !*controllers ? path : NULL;
    return list_has(controllers, controller) ? path : NULL;
}

static bool own_path(char *path, size_t size, const char *root, const char *controller, bool v2)
{
    FILE *file = open_under(root, "/proc/self/cgroup");
    char line[LINE_BYTES];
    bool found = false;

    if (!file)
        return false;
    while (!found && fb_line_read(file, line, sizeof(line))) {
        const char *from = line_path(line, controller, v2);

        found = from && from[0] == '/' && strlen(from) < size;
        if (found)
            memcpy(path, from, strlen(from) + 1);
    }
    fclose(file);
    return found;
}

/* mountinfo writes a blank, tab, newline and backslash as \040 and so on. */
static void unescape(char *text)
{
    char *to = text;

    for (; *text; text++) {
        unsigned value;

        if (text[0] == '\\' && sscanf(text + 1, "%3o", &value) == 1 && strlen(text) >= 4 && value) {
            *to++ = (char)value;
            text += 3;
        } else {
            *to++ = *text;
        }
    }
    *to = '\0';
}

struct mount {
    char *root, *point;
};

/* "31 23 0:28 ROOT POINT options [tags] - TYPE source superoptions"; cut in place. */
static bool mount_parse(char *line, struct mount *mount, const char *controller, bool v2)
{
    char *fields[5], *rest = strstr(line, " - "), *save, *type, *options;

    if (!rest)
        return false;
    *rest = '\0';
    type = strtok_r(rest + 3, " ", &save);
    strtok_r(NULL, " ", &save);
    options = strtok_r(NULL, " ", &save);
    if (!type || !options || strcmp(type, v2 ? "cgroup2" : "cgroup") != 0)
        return false;
    if (!v2 && !list_has(options, controller))
        return false;
    fields[0] = strtok_r(line, " ", &save);
    for (int i = 1; i < 5; i++)
        fields[i] = fields[i - 1] ? strtok_r(NULL, " ", &save) : NULL;
    if (!fields[4] || fields[4][0] != '/')
        return false;
    mount->root = fields[3];
    mount->point = fields[4];
    unescape(mount->root);
    unescape(mount->point);
    return true;
}

/* The part of `path` below the mount's root; "" if the mount does not show it: then the mount
 * point is as near as one can get, and in a container it is the container's own group. */
static const char *below_root(const char *path, const char *root)
{
    size_t length = strlen(root);

    if (strstr(path, "/..") || !strcmp(path, "/"))
        return "";
    if (!strcmp(root, "/"))
        return path;
    if (!strncmp(path, root, length) && (path[length] == '/' || !path[length]))
        return path + length;
    return "";
}

static bool is_folder(const char *path)
{
    struct stat about;

    return !stat(path, &about) && S_ISDIR(about.st_mode);
}

static bool group_set(struct fb_cgroup *group, const char *root, const struct mount *mount,
                      const char *path)
{
    int top = snprintf(group->folder, sizeof(group->folder), "%s%s", root, mount->point);
    const char *below = below_root(path, mount->root);

    if (top < 0 || (size_t)top + strlen(below) >= sizeof(group->folder))
        return false;
    group->top = (unsigned)top;
    memcpy(group->folder + top, below, strlen(below) + 1);
    if (!is_folder(group->folder))
        group->folder[top] = '\0';
    return is_folder(group->folder);
}

bool fb_cgroup_find(struct fb_cgroup *group, const char *root, const char *controller, bool v2)
{
    char path[LINE_BYTES], line[LINE_BYTES];
    struct mount mount;
    bool found = false;
    FILE *file;

    if (!own_path(path, sizeof(path), root, controller, v2))
        return false;
    file = open_under(root, "/proc/self/mountinfo");
    if (!file)
        return false;
    group->v2 = v2;
    while (!found && fb_line_read(file, line, sizeof(line)))
        found = mount_parse(line, &mount, controller, v2) && group_set(group, root, &mount, path);
    fclose(file);
    return found;
}

bool fb_cgroup_up(struct fb_cgroup *group)
{
    char *slash;

    if (strlen(group->folder) <= group->top)
        return false;
    slash = strrchr(group->folder, '/');
    if (slash < group->folder + group->top)
        return false;
    *slash = '\0';
    return true;
}

FILE *fb_cgroup_open(const struct fb_cgroup *group, const char *name)
{
    return open_under(group->folder, name);
}
