// SPDX-License-Identifier: GPL-2.0-only
/*
 * Graph-ordered suspend and resume as a module: writes a function of the running kernel as C would
 * declare it, from the kernel's own type information (BTF).
 *
 *	header | types: one record each, of a length that depends on its kind | strings
 */
#define pr_fmt(fmt) "dormouse-dpm: " fmt

#include <linux/btf.h>
#include <linux/mm.h>
#include <linux/string.h>

#include "host.h"
#include "types.h"

/* Of pointers to pointers, and the like. */
#define MAX_DEPTH	8

/* What follows a record: something of the kind, and something for each of its parts. */
static const struct {
	u8 once;
	u8 each;
} extra_bytes[] = {
	[BTF_KIND_INT] = { .once = sizeof(u32) },
	[BTF_KIND_ARRAY] = { .once = sizeof(struct btf_array) },
	[BTF_KIND_STRUCT] = { .each = sizeof(struct btf_member) },
	[BTF_KIND_UNION] = { .each = sizeof(struct btf_member) },
	[BTF_KIND_ENUM] = { .each = sizeof(struct btf_enum) },
	[BTF_KIND_FUNC_PROTO] = { .each = sizeof(struct btf_param) },
	[BTF_KIND_VAR] = { .once = sizeof(struct btf_var) },
	[BTF_KIND_DATASEC] = { .each = sizeof(struct btf_var_secinfo) },
	[BTF_KIND_DECL_TAG] = { .once = sizeof(struct btf_decl_tag) },
	[BTF_KIND_ENUM64] = { .each = sizeof(struct btf_enum64) },
};

static u32 record_bytes(const struct btf_type *type)
{
	u32 kind = BTF_INFO_KIND(type->info);

	if (kind >= ARRAY_SIZE(extra_bytes))
		return sizeof(*type);
	return sizeof(*type) + extra_bytes[kind].once +
	       extra_bytes[kind].each * btf_type_vlen(type);
}

/* Counts the records, and keeps where each begins. */
static u32 walk(const struct dpm_types *types, u32 *at)
{
	u32 offset = 0, count = 1;

	while (offset + sizeof(struct btf_type) <= types->type_bytes) {
		if (at)
			at[count] = offset;
		offset += record_bytes(types->base + offset);
		count++;
	}
	return offset == types->type_bytes ? count : 0;
}

int dpm_types_open(struct dpm_types *types)
{
	const struct btf_header *header = (void *)dpm_find_optional("__start_BTF");
	unsigned long end = dpm_find_optional("__stop_BTF");
	unsigned long bytes = end - (unsigned long)header;

	if (!header || !end || bytes < sizeof(*header) || header->magic != BTF_MAGIC ||
	    header->hdr_len > bytes || header->type_off ||
	    header->type_len > bytes - header->hdr_len ||
	    header->str_off > bytes - header->hdr_len ||
	    header->str_len > bytes - header->hdr_len - header->str_off) {
		pr_err("not loaded: this kernel has no type information (CONFIG_DEBUG_INFO_BTF) to check its functions by\n");
		return -ENOENT;
	}
	types->base = (void *)header + header->hdr_len;
	types->type_bytes = header->type_len;
	types->strings = types->base + header->str_off;
	types->string_bytes = header->str_len;
	types->count = walk(types, NULL);
	if (!types->count) {
		pr_err("not loaded: the kernel's type information is of an unknown format\n");
		return -EINVAL;
	}
	types->at = kvmalloc_array(types->count, sizeof(*types->at), GFP_KERNEL);
	if (!types->at)
		return -ENOMEM;
	walk(types, types->at);
	return 0;
}

void dpm_types_close(struct dpm_types *types)
{
	kvfree(types->at);
}

static const struct btf_type *type_of(const struct dpm_types *types, u32 id)
{
	return id && id < types->count ? types->base + types->at[id] : NULL;
}

static const char *name_of(const struct dpm_types *types, const struct btf_type *type)
{
	return type->name_off < types->string_bytes ? types->strings + type->name_off : "";
}

static void add_text(struct dpm_text *text, const char *more)
{
	size_t length = strlen(text->text);

	strscpy(text->text + length, more, sizeof(text->text) - length);
}

static void add_type(const struct dpm_types *types, u32 id, int depth, struct dpm_text *text)
{
	const struct btf_type *type = type_of(types, id);

	if (!type || depth > MAX_DEPTH) {
		add_text(text, type ? "..." : "void");
		return;
	}
	switch (BTF_INFO_KIND(type->info)) {
	case BTF_KIND_PTR:
		add_type(types, type->type, depth + 1, text);
		add_text(text, " *");
		return;
	case BTF_KIND_CONST:
		add_text(text, "const ");
		add_type(types, type->type, depth + 1, text);
		return;
	case BTF_KIND_VOLATILE:
	case BTF_KIND_RESTRICT:
	case BTF_KIND_TYPE_TAG:
		add_type(types, type->type, depth + 1, text);
		return;
	case BTF_KIND_STRUCT:
		add_text(text, "struct ");
		break;
	case BTF_KIND_UNION:
		add_text(text, "union ");
		break;
	case BTF_KIND_ENUM:
		add_text(text, "enum ");
		break;
	default:
		break;
	}
	add_text(text, name_of(types, type));
}

static void add_parameters(const struct dpm_types *types, const struct btf_type *proto,
			   struct dpm_text *text)
{
	const struct btf_param *parameter = (const void *)(proto + 1);
	u32 i;

	add_text(text, "(");
	for (i = 0; i < btf_type_vlen(proto); i++) {
		if (i)
			add_text(text, ", ");
		add_type(types, parameter[i].type, 0, text);
	}
	add_text(text, i ? ")" : "void)");
}

bool dpm_types_declare(const struct dpm_types *types, const char *name, struct dpm_text *text)
{
	u32 id;

	text->text[0] = 0;
	for (id = 1; id < types->count; id++) {
		const struct btf_type *type = type_of(types, id);
		const struct btf_type *proto;

		if (BTF_INFO_KIND(type->info) != BTF_KIND_FUNC ||
		    strcmp(name_of(types, type), name))
			continue;
		proto = type_of(types, type->type);
		if (!proto || BTF_INFO_KIND(proto->info) != BTF_KIND_FUNC_PROTO)
			return false;
		add_type(types, proto->type, 0, text);
		add_text(text, " ");
		add_text(text, name);
		add_parameters(types, proto, text);
		return true;
	}
	return false;
}
