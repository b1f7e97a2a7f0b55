// SPDX-License-Identifier: GPL-2.0-only
/* Made-up devices: from the text. See graph_test.h. */
#include <linux/kstrtox.h>
#include <linux/string.h>

#include "graph_test.h"

const char * const test_phase_names[DPM_GRAPH_PHASES] = DPM_GRAPH_PHASE_NAMES;

/* One line while it is read. */
struct line {
	char *rest;
	char *complaint;
	size_t bytes;
};

static int complain(const struct line *line, const char *what, const char *word)
{
	snprintf(line->complaint, line->bytes, "%s: %s", what, word ?: "(nothing)");
	return -EINVAL;
}

static char *next_word(struct line *line)
{
	char *word;

	do {
		word = strsep(&line->rest, " \t");
	} while (word && !*word);
	return word;
}

int test_phase_find(const char *name)
{
	int phase;

	for (phase = 0; phase < DPM_GRAPH_PHASES; phase++)
		if (!strcmp(test_phase_names[phase], name))
			return phase;
	return -EINVAL;
}

/* PHASE=MICROSECONDS[:busy] */
static int parse_duration(struct line *line, struct test_device *device, char *word)
{
	char *value = word, *key = strsep(&value, "=");
	char *us = value ? strsep(&value, ":") : NULL;
	int phase = test_phase_find(key);

	if (phase < 0 || !us)
		return complain(line, "not understood", key);
	if (kstrtou32(us, 10, &device->phase[phase].us))
		return complain(line, "no number of microseconds", us);
	if (value && strcmp(value, "busy"))
		return complain(line, "not understood", value);
	device->phase[phase].busy = value;
	return 0;
}

/* @parent: with a reference, or NULL; also after a failure. */
static int parse_attribute(struct line *line, struct test_device *device, char *word,
			   struct device **parent)
{
	struct test_device *found;

	if (!strcmp(word, "async")) {
		device->async = true;
	} else if (!strcmp(word, "noops")) {
		device->noops = true;
	} else if (!strcmp(word, "nodriver")) {
		device->nodriver = true;
	} else if (!strcmp(word, "suspended")) {
		device->suspended = true;
	} else if (!strcmp(word, "direct")) {
		device->direct = true;
	} else if (strstarts(word, "parent=")) {
		found = test_device_find(word + strlen("parent="));
		if (!found)
			return complain(line, "no such parent before it", word);
		put_device(*parent);
		*parent = get_device(&found->dev);
	} else if (strstarts(word, "under=")) {
		put_device(*parent);
		*parent = test_real_device_get(&device->dev, word + strlen("under="));
		if (!*parent)
			return complain(line, "no such device of the machine", word);
	} else if (strstarts(word, "bus=")) {
		if (kstrtoint(word + strlen("bus="), 10, &device->bus) || device->bus < 0 ||
		    device->bus >= TEST_BUSES)
			return complain(line, "no bus", word);
	} else {
		return parse_duration(line, device, word);
	}
	return 0;
}

static int parse_device(struct line *line)
{
	char *word, *name = next_word(line);
	struct device *parent = NULL;
	struct test_device *device;
	int error;

	if (!name)
		return complain(line, "a device needs a name", NULL);
	if (test_device_find(name))
		return complain(line, "a second device of this name", name);
	device = test_device_new(name);
	if (!device)
		return -ENOMEM;
	while ((word = next_word(line))) {
		error = parse_attribute(line, device, word, &parent);
		if (error) {
			put_device(parent);
			put_device(&device->dev);
			return error;
		}
	}
	error = test_device_add(device, parent);
	put_device(parent);
	return error ? complain(line, "cannot be added", name) : 0;
}

static int parse_link(struct line *line)
{
	static const struct {
		const char *name;
		u32 flags;
	} kinds[] = {
		{ "stateless", DL_FLAG_STATELESS },
		{ "runtime", DL_FLAG_STATELESS | DL_FLAG_PM_RUNTIME },
		{ "managed", DL_FLAG_AUTOREMOVE_CONSUMER },
		{ "sync_state", DL_FLAG_SYNC_STATE_ONLY },
	};
	char *supplier = next_word(line), *consumer = next_word(line), *kind = next_word(line);
	struct test_device *from = supplier ? test_device_find(supplier) : NULL;
	struct test_device *to = consumer ? test_device_find(consumer) : NULL;
	int i;

	if (!from || !to)
		return complain(line, "no such device", from ? consumer : supplier);
	for (i = 0; kind && i < ARRAY_SIZE(kinds); i++) {
		if (strcmp(kinds[i].name, kind))
			continue;
		if (test_link_add(&from->dev, &to->dev, kinds[i].flags))
			return complain(line, "link refused by the driver core", consumer);
		return 0;
	}
	return complain(line, "no kind of link", kind);
}

static int parse_line(struct line *line)
{
	char *word = next_word(line);

	if (!word || *word == '#')
		return 0;
	if (!strcmp(word, "device"))
		return parse_device(line);
	if (!strcmp(word, "link"))
		return parse_link(line);
	return complain(line, "neither device nor link", word);
}

int test_parse_graph(char *text, char *complaint, size_t bytes)
{
	struct line line = { .complaint = complaint, .bytes = bytes };
	int error = 0;

	while (!error && (line.rest = strsep(&text, "\n")))
		error = parse_line(&line);
	return error;
}

/* remove DEVICE PHASE OTHER | add DEVICE PHASE OTHER */
static int parse_change(struct line *line, struct test_phase *phase, bool removes)
{
	char *name = next_word(line);
	struct test_device *other;

	if (!name || strlen(name) >= TEST_NAME_BYTES)
		return complain(line, "no name of a device", name);
	other = test_device_find(name);
	if (removes ? !other || !test_device_is_apart(other) : !!other)
		return complain(line, removes ? "cannot be removed" : "is there already", name);
	strscpy(phase->other, name);
	phase->injection = removes ? TEST_REMOVE : TEST_ADD;
	return 0;
}

/* fail DEVICE PHASE [ERRNO] | wake DEVICE PHASE | hang DEVICE PHASE MILLISECONDS, or a change */
int test_parse_injection(char *text, char *complaint, size_t bytes)
{
	struct line line = { .rest = text, .complaint = complaint, .bytes = bytes };
	char *what = next_word(&line), *name = next_word(&line), *where = next_word(&line);
	char *value;
	struct test_device *device = name ? test_device_find(name) : NULL;
	enum test_injection injection;
	struct test_phase *phase;
	int number = 5;

	if (!device)
		return complain(&line, "no such device", name);
	if (!where || test_phase_find(where) < 0)
		return complain(&line, "no such phase", where);
	phase = &device->phase[test_phase_find(where)];
	if (!strcmp(what, "remove") || !strcmp(what, "add"))
		return parse_change(&line, phase, !strcmp(what, "remove"));
	value = next_word(&line);
	if (value && kstrtoint(value, 10, &number))
		return complain(&line, "no number", value);
	if (!strcmp(what, "fail")) {
		injection = TEST_FAIL;
		number = -number;
	} else if (!strcmp(what, "wake")) {
		injection = TEST_WAKE;
	} else if (!strcmp(what, "hang") && value) {
		injection = TEST_HANG;
	} else {
		return complain(&line, "not understood", what);
	}
	phase->value = number;
	phase->injection = injection;
	return 0;
}
