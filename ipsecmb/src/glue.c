/* Functions of Intel's multi-buffer library as src/gcm.rs calls them. The library's own interface is macros over a table of functions whose
 * layout differs between versions: the header that is installed knows it, and no Rust has to. */

#include <stddef.h>
#include <stdint.h>

#include <intel-ipsec-mb.h>

/* One packet of AES-GCM, as in src/gcm.rs. */
struct wirerate_packet {
	uint8_t *text;
	uint64_t len;
	const uint8_t *nonce; /* 12 bytes */
	const uint8_t *aad;
	uint64_t aad_len;
	uint8_t *tag; /* 16 bytes, written */
};

_Static_assert(sizeof(struct wirerate_packet) == 48, "as in src/gcm.rs");
_Static_assert(_Alignof(struct gcm_key_data) <= 64, "as src/gcm.rs allocates it");

size_t wirerate_imb_key_bytes(void)
{
	return sizeof(struct gcm_key_data);
}

/* The table of functions for this processor; NULL where the processor lacks what the library needs. */
IMB_MGR *wirerate_imb_new(void)
{
	IMB_MGR *mgr = alloc_mb_mgr(0);

	if (mgr == NULL)
		return NULL;
	init_mb_mgr_auto(mgr, NULL);
	if (imb_get_errno(mgr) != 0 || mgr->gcm128_enc == NULL || (mgr->features & IMB_FEATURE_AESNI) == 0) {
		free_mb_mgr(mgr);
		return NULL;
	}
	return mgr;
}

/* 1 where the library works on 512 bits at a time. */
int wirerate_imb_is_wide(const IMB_MGR *mgr)
{
	const uint64_t wide = IMB_FEATURE_AVX512_SKX | IMB_FEATURE_VAES | IMB_FEATURE_VPCLMULQDQ;

	return (mgr->features & wide) == wide;
}

void wirerate_imb_expand(const IMB_MGR *mgr, const uint8_t *key, size_t key_len, void *expanded)
{
	if (key_len == 16)
		IMB_AES128_GCM_PRE(mgr, key, expanded);
	else
		IMB_AES256_GCM_PRE(mgr, key, expanded);
}

void wirerate_imb_seal(const IMB_MGR *mgr, const void *expanded, size_t key_len, const struct wirerate_packet *packets, size_t count)
{
	struct gcm_context_data context;
	const aes_gcm_enc_dec_t seal = key_len == 16 ? mgr->gcm128_enc : mgr->gcm256_enc;

	for (const struct wirerate_packet *p = packets; p < packets + count; p++)
		seal(expanded, &context, p->text, p->text, p->len, p->nonce, p->aad, p->aad_len, p->tag, 16);
}

void wirerate_imb_open(const IMB_MGR *mgr, const void *expanded, size_t key_len, const struct wirerate_packet *packets, size_t count)
{
	struct gcm_context_data context;
	const aes_gcm_enc_dec_t open = key_len == 16 ? mgr->gcm128_dec : mgr->gcm256_dec;

	for (const struct wirerate_packet *p = packets; p < packets + count; p++)
		open(expanded, &context, p->text, p->text, p->len, p->nonce, p->aad, p->aad_len, p->tag, 16);
}
