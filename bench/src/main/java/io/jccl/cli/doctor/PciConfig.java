package io.jccl.cli.doctor;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;

/** The configuration space of a PCI device. */
final class PciConfig {
    private static final int EXTENDED = 0x100;
    private static final int ACS = 0x000D;
    private static final int ACS_CONTROL = 6;

    /** Request redirect and completion redirect; source validation alone is harmless. */
    private static final int REDIRECT = 0x4 | 0x8;

    private PciConfig() {}

    /**
     * Whether a bridge redirects requests between the devices below it to the processor (access
     * control services, an extended capability).
     *
     * @param config the content of sysfs's {@code config}, of which only root can read all
     */
    static Reading<Boolean> redirectsPeers(byte[] config) {
        if (config.length <= 64) {
            return Reading.unknown("only root may read all of a bridge's PCI configuration");
        }
        ByteBuffer space = ByteBuffer.wrap(config).order(ByteOrder.LITTLE_ENDIAN);
        // Each capability starts with its number (16 bits), version (4) and the offset of the next.
        // Offsets must increase, or invalid data could cause an endless loop.
        int at = EXTENDED;
        while (at >= EXTENDED && at + 8 <= config.length) {
            int header = space.getInt(at);
            if ((header & 0xFFFF) == ACS) {
                return Reading.known((space.getShort(at + ACS_CONTROL) & REDIRECT) != 0);
            }
            int next = header >>> 20;
            at = next > at ? next : 0;
        }
        return Reading.known(false);
    }
}
