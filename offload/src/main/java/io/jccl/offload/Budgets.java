package io.jccl.offload;

import java.util.EnumMap;
import java.util.Map;
import java.util.concurrent.atomic.AtomicLong;

/**
 * Limits and current use of each tier in bytes. Pools and stores account here for what they take
 * from the system, so that several of them can share one limit.
 *
 * {@snippet class="snippets.Offload" region="pools"}
 *
 * <p><b>Threads:</b> any.
 */
public final class Budgets {
    /** No limit but the system's. */
    public static final long UNLIMITED = Long.MAX_VALUE;

    private final Map<Tier, Account> accounts = new EnumMap<>(Tier.class);

    private static final class Account {
        final long cap;
        final AtomicLong used = new AtomicLong();
        final AtomicLong peak = new AtomicLong();

        Account(long cap) {
            this.cap = cap;
        }
    }

    /**
     * Budgets with these limits.
     *
     * @param caps bytes per tier, 0 or more; a tier that is not named is unlimited
     */
    public Budgets(Map<Tier, Long> caps) {
        for (Tier tier : Tier.values()) {
            long cap = caps.getOrDefault(tier, UNLIMITED);
            if (cap < 0) {
                throw new IllegalArgumentException(
                        "the budget of tier " + tier + " is " + cap + " bytes, expected 0 or more");
            }
            accounts.put(tier, new Account(cap));
        }
    }

    /**
     * Takes bytes of a tier.
     *
     * @param tier where
     * @param bytes how many, 0 or more
     * @param what the purpose, for the message if there is no room
     * @throws OffloadMemoryException if they are not available; nothing is taken then
     */
    public void take(Tier tier, long bytes, String what) {
        if (bytes < 0) {
            throw new IllegalArgumentException("bytes is " + bytes + ", expected 0 or more");
        }
        Account account = account(tier);
        while (true) {
            long used = account.used.get();
            long free = account.cap - used;
            if (bytes > free) {
                throw new OffloadMemoryException(
                        tier,
                        bytes,
                        free,
                        "%s; the budget is %s bytes: raise it, or free %s bytes first"
                                .formatted(what, account.cap, bytes - free),
                        null);
            }
            if (account.used.compareAndSet(used, used + bytes)) {
                account.peak.accumulateAndGet(used + bytes, Math::max);
                return;
            }
        }
    }

    /**
     * Gives bytes back.
     *
     * @param tier where
     * @param bytes how many; not more than were taken
     */
    public void give(Tier tier, long bytes) {
        if (account(tier).used.addAndGet(-bytes) < 0) {
            account(tier).used.addAndGet(bytes);
            throw new IllegalStateException(
                    bytes + " bytes given back to tier " + tier + ", which is more than was taken");
        }
    }

    /**
     * The limit of a tier.
     *
     * @param tier which
     * @return bytes
     */
    public long cap(Tier tier) {
        return account(tier).cap;
    }

    /**
     * Bytes in use.
     *
     * @param tier which
     * @return bytes
     */
    public long used(Tier tier) {
        return account(tier).used.get();
    }

    /**
     * Bytes left.
     *
     * @param tier which
     * @return bytes
     */
    public long free(Tier tier) {
        return account(tier).cap - used(tier);
    }

    /**
     * The peak use.
     *
     * @param tier which
     * @return bytes
     */
    public long peak(Tier tier) {
        return account(tier).peak.get();
    }

    private Account account(Tier tier) {
        Account account = accounts.get(tier);
        if (account == null) {
            throw new NullPointerException("tier");
        }
        return account;
    }
}
