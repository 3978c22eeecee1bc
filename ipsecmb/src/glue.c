/* Functions of Intel's multi-buffer library as Rust calls them. The library's own interface is macros over a table of functions whose
 * layout differs between versions: the header that is installed knows it, and no Rust has to. */

#include <stddef.h>
#include <stdint.h>

#include <intel-ipsec-mb.h>

#if IMB_VERSION_NUM < IMB_VERSION(1, 3, 0)
#error "needs libipsec-mb 1.3, the first one that carries out bursts of ciphers and of HMACs at once"
#endif

/* One packet of a combined cipher, as in src/packet.rs. */
struct wirerate_packet {
	uint8_t *text;
	uint64_t len;
	const uint8_t *nonce; /* 12 bytes */
	const uint8_t *aad;
	uint64_t aad_len;
	uint8_t *tag; /* 16 bytes, written */
};

/* A block and the text behind it, as in src/cbc.rs. */
struct wirerate_text {
	uint8_t *block;
	uint64_t len; /* of both: a multiple of 16 bytes */
};

/* Bytes that are authenticated, as in src/hmac.rs. */
struct wirerate_message {
	const uint8_t *bytes;
	uint64_t len;
	uint8_t *tag; /* 32 bytes, of which those of the algorithm's length are written */
};

_Static_assert(sizeof(struct wirerate_packet) == 48, "as in src/packet.rs");
_Static_assert(sizeof(struct wirerate_text) == 16, "as in src/cbc.rs");
_Static_assert(sizeof(struct wirerate_message) == 24, "as in src/hmac.rs");
_Static_assert(_Alignof(struct gcm_key_data) <= 64, "as src/gcm.rs allocates it");

/* Jobs of one burst: as many as the library has lanes. */
enum { BURST = 16 };

/* The library's functions for this processor, with queues of their own; NULL where the processor lacks what the library needs. */
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
int wirerate_imb_is_wide(void)
{
	const uint64_t wide = IMB_FEATURE_AVX512_SKX | IMB_FEATURE_VAES | IMB_FEATURE_VPCLMULQDQ;

	return (imb_get_feature_flags() & wide) == wide;
}

const char *wirerate_imb_version(void)
{
	return imb_get_version_str();
}

/* AES-GCM: functions without state. */

size_t wirerate_gcm_key_bytes(void)
{
	return sizeof(struct gcm_key_data);
}

void wirerate_gcm_expand(const IMB_MGR *mgr, const uint8_t *key, size_t key_len, void *expanded)
{
	if (key_len == 16)
		IMB_AES128_GCM_PRE(mgr, key, expanded);
	else
		IMB_AES256_GCM_PRE(mgr, key, expanded);
}

void wirerate_gcm_seal(const IMB_MGR *mgr, const void *expanded, size_t key_len, const struct wirerate_packet *packets, size_t count)
{
	struct gcm_context_data context;
	const aes_gcm_enc_dec_t seal = key_len == 16 ? mgr->gcm128_enc : mgr->gcm256_enc;

	for (const struct wirerate_packet *p = packets; p < packets + count; p++)
		seal(expanded, &context, p->text, p->text, p->len, p->nonce, p->aad, p->aad_len, p->tag, 16);
}

void wirerate_gcm_open(const IMB_MGR *mgr, const void *expanded, size_t key_len, const struct wirerate_packet *packets, size_t count)
{
	struct gcm_context_data context;
	const aes_gcm_enc_dec_t open = key_len == 16 ? mgr->gcm128_dec : mgr->gcm256_dec;

	for (const struct wirerate_packet *p = packets; p < packets + count; p++)
		open(expanded, &context, p->text, p->text, p->len, p->nonce, p->aad, p->aad_len, p->tag, 16);
}

/* ChaCha20-Poly1305: one job after another; each is done when it has been submitted. Returns how many were. */
size_t wirerate_chacha(IMB_MGR *mgr, const uint8_t *key, const struct wirerate_packet *packets, size_t count, uint32_t decrypts)
{
	const IMB_CIPHER_DIRECTION direction = decrypts ? IMB_DIR_DECRYPT : IMB_DIR_ENCRYPT;
	size_t done = 0;

	for (const struct wirerate_packet *p = packets; p < packets + count; p++) {
		IMB_JOB *job = IMB_GET_NEXT_JOB(mgr);

		job->cipher_mode = IMB_CIPHER_CHACHA20_POLY1305;
		job->hash_alg = IMB_AUTH_CHACHA20_POLY1305;
		job->cipher_direction = direction;
		job->chain_order = direction == IMB_DIR_ENCRYPT ? IMB_ORDER_CIPHER_HASH : IMB_ORDER_HASH_CIPHER;
		job->enc_keys = key;
		job->dec_keys = key;
		job->key_len_in_bytes = 32;
		job->src = p->text;
		job->dst = p->text;
		job->cipher_start_src_offset_in_bytes = 0;
		job->msg_len_to_cipher_in_bytes = p->len;
		job->hash_start_src_offset_in_bytes = 0;
		job->msg_len_to_hash_in_bytes = p->len;
		job->iv = p->nonce;
		job->iv_len_in_bytes = 12;
		job->u.CHACHA20_POLY1305.aad = p->aad;
		job->u.CHACHA20_POLY1305.aad_len_in_bytes = p->aad_len;
		job->auth_tag_output = p->tag;
		job->auth_tag_output_len_in_bytes = 16;
		for (job = IMB_SUBMIT_JOB_NOCHECK(mgr); job != NULL; job = IMB_GET_COMPLETED_JOB(mgr))
			done += job->status == IMB_STATUS_COMPLETED;
	}
	for (IMB_JOB *job; (job = IMB_FLUSH_JOB(mgr)) != NULL;)
		done += job->status == IMB_STATUS_COMPLETED;
	return done;
}

/* AES-CBC: round keys are 240 bytes each. */

void wirerate_cbc_expand(const IMB_MGR *mgr, const uint8_t *key, size_t key_len, void *encrypt, void *decrypt)
{
	if (key_len == 16)
		IMB_AES_KEYEXP_128(mgr, key, encrypt, decrypt);
	else if (key_len == 24)
		IMB_AES_KEYEXP_192(mgr, key, encrypt, decrypt);
	else
		IMB_AES_KEYEXP_256(mgr, key, encrypt, decrypt);
}

/* Encrypts the blocks, then the texts chained to them; or decrypts the texts. Returns how many were. */
size_t wirerate_cbc(IMB_MGR *mgr, const void *encrypt, const void *decrypt, size_t key_len, const struct wirerate_text *texts, size_t count,
		    uint32_t decrypts)
{
	const IMB_CIPHER_DIRECTION direction = decrypts ? IMB_DIR_DECRYPT : IMB_DIR_ENCRYPT;
	static const uint8_t zeros[16];
	const size_t ahead = decrypts ? 16 : 0;
	IMB_JOB jobs[BURST];
	size_t done = 0;

	for (size_t at = 0; at < count; at += BURST) {
		const uint32_t burst = count - at < BURST ? (uint32_t)(count - at) : BURST;

		for (uint32_t i = 0; i < burst; i++) {
			const struct wirerate_text *t = texts + at + i;

			jobs[i] = (IMB_JOB){
				.enc_keys = encrypt,
				.dec_keys = decrypt,
				.key_len_in_bytes = key_len,
				.src = t->block + ahead,
				.dst = t->block + ahead,
				.msg_len_to_cipher_in_bytes = t->len - ahead,
				.iv = ahead == 0 ? zeros : t->block,
				.iv_len_in_bytes = 16,
				.cipher_mode = IMB_CIPHER_CBC,
				.cipher_direction = direction,
				.hash_alg = IMB_AUTH_NULL,
			};
		}
		done += IMB_SUBMIT_CIPHER_BURST_NOCHECK(mgr, jobs, burst, IMB_CIPHER_CBC, direction, (IMB_KEY_SIZE_BYTES)key_len);
	}
	return done;
}

/* HMAC: `hash` is 1, 256, 384 or 512, for SHA-1 and those of SHA-2. */

/* Hashes one block, of 64 or 128 bytes, into a state of at most 64. */
void wirerate_hmac_hash_block(const IMB_MGR *mgr, uint32_t hash, const uint8_t *block, uint8_t *state)
{
	switch (hash) {
	case 1: IMB_SHA1_ONE_BLOCK(mgr, block, state); break;
	case 256: IMB_SHA256_ONE_BLOCK(mgr, block, state); break;
	case 384: IMB_SHA384_ONE_BLOCK(mgr, block, state); break;
	default: IMB_SHA512_ONE_BLOCK(mgr, block, state); break;
	}
}

/* Writes the tags of messages, of the length that ESP truncates them to. Returns how many were. */
size_t wirerate_hmac_sign(IMB_MGR *mgr, uint32_t hash, const uint8_t *inner, const uint8_t *outer, const struct wirerate_message *messages,
			  size_t count)
{
	const IMB_HASH_ALG algorithm = hash == 1     ? IMB_AUTH_HMAC_SHA_1
				       : hash == 256 ? IMB_AUTH_HMAC_SHA_256
				       : hash == 384 ? IMB_AUTH_HMAC_SHA_384
						     : IMB_AUTH_HMAC_SHA_512;
	const uint64_t tag_len = hash == 1 ? 12 : hash / 16;
	IMB_JOB jobs[BURST];
	size_t done = 0;

	for (size_t at = 0; at < count; at += BURST) {
		const uint32_t burst = count - at < BURST ? (uint32_t)(count - at) : BURST;

		for (uint32_t i = 0; i < burst; i++) {
			const struct wirerate_message *m = messages + at + i;

			jobs[i] = (IMB_JOB){
				.src = m->bytes,
				.msg_len_to_hash_in_bytes = m->len,
				.auth_tag_output = m->tag,
				.auth_tag_output_len_in_bytes = tag_len,
				.u.HMAC._hashed_auth_key_xor_ipad = inner,
				.u.HMAC._hashed_auth_key_xor_opad = outer,
				.cipher_mode = IMB_CIPHER_NULL,
				.cipher_direction = IMB_DIR_ENCRYPT,
				.hash_alg = algorithm,
			};
		}
		done += IMB_SUBMIT_HASH_BURST_NOCHECK(mgr, jobs, burst, algorithm);
	}
	return done;
}
