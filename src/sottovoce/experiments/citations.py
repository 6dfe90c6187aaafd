"""What to cite for each algorithm to compare with, by its name."""

PAPER = "C. Liu, K. H. Johansson, Y. Shi. Distributed Empirical Risk Minimization With Differential Privacy. 2024"
_DUAL_AVERAGING = (
    "L. Xiao. Dual Averaging Methods for Regularized Stochastic Learning and Online Optimization. JMLR 11, 2010"
)
_DSGD = "X. Lian et al. Can Decentralized Algorithms Outperform Centralized Algorithms? NeurIPS 2017 (without privacy)"
_DPSGD = "M. Abadi et al. Deep Learning with Differential Privacy. CCS 2016"
_HUANG = "Z. Huang, S. Mitra, N. Vaidya. Differentially Private Distributed Optimization. ICDCN 2015"
_XIAO = (
    "H. Xiao, S. Devadas. Towards Understanding Practical Randomness Beyond Noise: Differential Privacy and Mixup. "
    "Cryptology ePrint Archive 2021/687"
)
_DECOR = "Y. Allouah et al. The Privacy Power of Correlated Noise in Decentralized Learning. ICML 2024"
_NOBLE = (
    "M. Noble, A. Bellet, A. Dieuleveut. Differentially Private Federated Learning on Heterogeneous Data. AISTATS 2022"
)
_CHAUDHURI = (
    "K. Chaudhuri, C. Monteleoni, A. D. Sarwate. Differentially Private Empirical Risk Minimization. JMLR 12, 2011"
)

CITATIONS = {
    "sottovoce": PAPER,
    "pairs": f"{PAPER}; {_DECOR}",
    "majority": f"{PAPER}; {_DECOR}",
    "algorithm1": PAPER,
    "liu2022": (
        "C. Liu, K. H. Johansson, Y. Shi. Private Stochastic Dual Averaging for Decentralized Empirical Risk "
        "Minimization. IFAC-PapersOnLine 55(13), 2022"
    ),
    "dda": (
        "J. C. Duchi, A. Agarwal, M. J. Wainwright. Dual Averaging for Distributed Optimization: Convergence Analysis "
        "and Network Scaling. IEEE TAC 57(3), 2012"
    ),
    "dual_averaging": f"{PAPER}; {_DUAL_AVERAGING}",
    "dsgd": f"{_DSGD}; {_DPSGD}",
    "adpsgd": (
        "J. Xu, W. Zhang, F. Wang. A(DP)²SGD: Asynchronous Decentralized Parallel Stochastic Gradient Descent with "
        "Differential Privacy. IEEE TPAMI; arXiv 2008.09246"
    ),
    "tracking": (
        "T. Ding, S. Zhu, J. He, C. Chen, X. Guan. Differentially Private Distributed Optimization via State and "
        "Direction Perturbation in Multiagent Systems. IEEE TAC 67(2), 2022"
    ),
    "muffliato": (
        "E. Cyffers, M. Even, A. Bellet, L. Massoulié. Muffliato: Peer-to-Peer Privacy Amplification for Decentralized "
        "Optimization and Averaging. NeurIPS 2022"
    ),
    "huang": _HUANG,
    "huang_gaussian": _HUANG,
    "xiao_admm": _XIAO,
    "xiao_dgd": _XIAO,
    "decor": _DECOR,
    "decor_pairs": _DECOR,
    "decor_majority": _DECOR,
    "alone": _DPSGD,
    "fedavg": _NOBLE,
    "scaffold": _NOBLE,
    "scaffold_warm": _NOBLE,
    "central_da": _DUAL_AVERAGING,
    "dpsgd": _DPSGD,
    "dpftrl": ("P. Kairouz et al. Practical and Private (Deep) Learning Without Sampling or Shuffling. ICML 2021"),
    "output": _CHAUDHURI,
    "objective": _CHAUDHURI,
}
